package supported

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// Annotation is an annotation of the field's by which the metadata of a VirtualMachineInstance changes its
// virtual machine or its pod.
type Annotation struct {
	// Name is the annotation's; with a * at its end it is how the names of several begin.
	Name string
	// Off is the value that says the same as leaving it out; empty for none.
	Off string
	// Note says what it does, or, of one that is refused, what it asks for.
	Note string
}

// ActedOn are the annotations that Slipway acts on.
var ActedOn = []Annotation{
	{Name: virtv1.DisablePCIHole64, Note: "`true`: the guest's PCI bus has no window above 4 GiB, over which systems as old as Windows XP stumble."},
	{Name: virtv1.FreePageReportingDisabledAnnotation, Note: "`true`: the guest does not hand back to the node what it has freed of its memory."},
	{Name: virtv1.MemfdMemoryBackend, Note: "`false`: huge pages are taken from a file in the pod's volume."},
}

// refusedAnnotations are those that Slipway does not act on.
var refusedAnnotations = []Annotation{
	{Name: "hooks.kubevirt.io/*", Note: "programs beside the machine that change its domain"},
	{Name: virtv1.IgnitionAnnotation, Note: "a configuration by Ignition; give it as the user data of a cloudInitConfigDrive, which Ignition reads on OpenStack's images"},
	{Name: virtv1.PlacePCIDevicesOnRootComplex, Off: "false", Note: "PCI devices on bus 00; give them their pciAddress there"},
	{Name: virtv1.CustomLibvirtLogFiltersAnnotation, Note: "what libvirt logs"},
	{Name: virtv1.KeepLauncherAfterFailureAnnotation, Off: "false", Note: "a pod that stays when its machine has failed"},
	{Name: virtv1.PauseGuestAgentProbesAnnotation, Off: "false", Note: "probes of the guest's agent that succeed unasked"},
	{Name: virtv1.CreateMigrationTarget, Off: "false", Note: "a machine that another one is migrated to"},
	{Name: "kubevirt.io/func-test-*", Note: "faults for tests"},
}

// Annotations returns an error for each of annotations, which are at path, that would change a virtual machine
// and that Slipway does not act on, but for those that were there before, which may be nil.
func Annotations(annotations, before map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[name]
		i := slices.IndexFunc(refusedAnnotations, func(one Annotation) bool { return one.is(name) })
		if was, had := before[name]; i < 0 || had && was == value {
			continue
		}
		if refused := refusedAnnotations[i]; refused.Off == "" || value != refused.Off {
			errs = append(errs, field.Forbidden(path.Key(name), fmt.Sprintf("Slipway does not act on this annotation yet (%s); remove it", refused.Note)))
		}
	}
	return errs
}

// is says whether a is the annotation called name.
func (a Annotation) is(name string) bool {
	if prefix, several := strings.CutSuffix(a.Name, "*"); several {
		return strings.HasPrefix(name, prefix)
	}
	return name == a.Name
}

// AnnotationsMarkdown returns the docs' chapter of annotations.
func AnnotationsMarkdown() string {
	var b strings.Builder
	b.WriteString("## Annotations\n\nOf a VirtualMachineInstance, also by the template of a VirtualMachine, a VirtualMachineInstanceReplicaSet or a VirtualMachinePool, " +
		"and by an instance type or preference. Those of the field that change a virtual machine and are acted on:\n\n| annotation | note |\n|---|---|\n")
	for _, one := range ActedOn {
		fmt.Fprintf(&b, "| `%s` | %s |\n", one.Name, one.Note)
	}
	b.WriteString("\nRefused at admission, with its path, where it is not there already:\n\n| annotation | passes | asks for |\n|---|---|---|\n")
	for _, one := range refusedAnnotations {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", one.Name, one.Off, one.Note)
	}
	return b.String()
}
