package virtualmachineclone

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// uid is of the VM that is cloned in these tests.
const uid types.UID = "old"

func cloneTo(name string, changes ...func(*clonev1.VirtualMachineCloneSpec)) *clonev1.VirtualMachineClone {
	clone := &clonev1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "1f3a-2"}}
	clone.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	if name != "" {
		clone.Spec.Target = &corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: name}
	}
	for _, change := range changes {
		change(&clone.Spec)
	}
	return clone
}

func taken(options ...fixture.VMOption) (*snapshotv1.VirtualMachineSnapshot, *snapshotv1.VirtualMachineSnapshotContent) {
	vm := fixture.VM("shop", "web", options...)
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, Status: &snapshotv1.VirtualMachineSnapshotStatus{SourceUID: new(uid)}}
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "content"}}
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: vm.Labels, Annotations: vm.Annotations}, Spec: vm.Spec,
	}
	return snapshot, content
}

// planned is the VM that comes of clone.
func planned(t *testing.T, clone *clonev1.VirtualMachineClone, options ...fixture.VMOption) (*virtv1.VirtualMachine, error) {
	t.Helper()
	snapshot, content := taken(options...)
	restore, err := newRestore(clone, snapshot, content)
	if err != nil {
		return nil, err
	}
	vm, err := virtualmachinerestore.Planned(restore, content, snapshot.Status.SourceUID)
	if err != nil {
		t.Fatal(err)
	}
	return vm, nil
}

// nics gives a VM interfaces, each a name and an address.
func nics(pairs ...string) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Interfaces, spec.Networks = nil, nil
		for i := 0; i < len(pairs); i += 2 {
			spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, virtv1.Interface{Name: pairs[i], MacAddress: pairs[i+1]})
		}
	}
}

func numbered(vm *virtv1.VirtualMachine) {
	vm.Spec.Template.Spec.Domain.Firmware = &virtv1.Firmware{UUID: "11111111-1111-1111-1111-111111111111", Serial: "s-1"}
	vm.Spec.Template.Spec.Domain.Chassis = &virtv1.Chassis{Serial: "c-1", Asset: "a-1"}
}

func annotated(key, value string) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.ObjectMeta.Annotations = map[string]string{key: value}
	}
}

// What a clone asks a restore for, with all that can be asked of it.
func TestGolden(t *testing.T) {
	clone := cloneTo("copy", func(s *clonev1.VirtualMachineCloneSpec) {
		s.LabelFilters, s.AnnotationFilters = []string{"*", "!drop/*"}, []string{"keep"}
		s.Template.LabelFilters, s.Template.AnnotationFilters = []string{"keep"}, []string{}
		s.NewMacAddresses, s.NewSMBiosSerial = map[string]string{"a": "02-00-00-00-00-09"}, new("s-9")
		s.VolumeNamePolicy = new(clonev1.VolumeNamePolicyPrefixTargetName)
		s.Patches = []string{`{"op": "add", "path": "/spec/template/spec/hostname", "value": "copy"}`}
	})
	said := func(vm *virtv1.VirtualMachine) {
		both := map[string]string{"keep": "1", "drop/it": "2"}
		vm.Labels, vm.Annotations = both, both
		vm.Spec.Template.ObjectMeta.Labels, vm.Spec.Template.ObjectMeta.Annotations = both, map[string]string{"drop/it": "2", guestid.AnnotationName: "copy"}
	}
	snapshot, content := taken(nics("a", "02:00:00:00:00:01", "b", guestid.MAC("shop", "copy", "b").String()), numbered, said)
	restore, err := newRestore(clone, snapshot, content)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(restore)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, filepath.Join("testdata", "restore.yaml"), got)
}

func TestAMachineOfItsOwn(t *testing.T) {
	vm, err := planned(t, cloneTo("copy"), nics("a", "02:00:00:00:00:01", "b", ""), numbered, annotated(guestid.AnnotationName, "shop"))
	if err != nil {
		t.Fatal(err)
	}
	domain := &vm.Spec.Template.Spec.Domain
	if domain.Devices.Interfaces[0].MacAddress != "" || domain.Devices.Interfaces[1].MacAddress != "" {
		t.Errorf("the interfaces are %+v", domain.Devices.Interfaces)
	}
	if *domain.Firmware != (virtv1.Firmware{}) || domain.Chassis.Serial != "" || domain.Chassis.Asset != "a-1" {
		t.Errorf("the numbers are %+v, %+v", domain.Firmware, domain.Chassis)
	}
	if noted, found := vm.Spec.Template.ObjectMeta.Annotations[guestid.AnnotationName]; found {
		t.Errorf("the guest is known as %s", noted)
	}
}

// A guest on a bridge has the address of its pod, whatever its VM and what that was cloned from are called.
func TestAnInterfaceOnABridge(t *testing.T) {
	bridged := func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].Bridge = &virtv1.InterfaceBridge{}
	}
	for name, address := range map[string]string{"that names none": "", "that names one": guestid.MAC("shop", "copy", "default").String()} {
		t.Run(name, func(t *testing.T) {
			vm, err := planned(t, cloneTo("copy"), nics("default", address), bridged)
			if err != nil {
				t.Fatal(err)
			}
			if got := vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress; got != "" {
				t.Errorf("the clone's address is %s", got)
			}
		})
	}
}

func TestWhatIsAskedFor(t *testing.T) {
	ask := func(s *clonev1.VirtualMachineCloneSpec) {
		s.NewMacAddresses, s.NewSMBiosSerial = map[string]string{"default": "02-00-00-00-00-09"}, new("s-9")
		s.VolumeNamePolicy = new(clonev1.VolumeNamePolicyPrefixTargetName)
	}
	for name, options := range map[string][]fixture.VMOption{
		"of what the VM has":             {nics("default", "02:00:00:00:00:01"), numbered},
		"of what the VM says nothing of": {nics()},
	} {
		t.Run(name, func(t *testing.T) {
			vm, err := planned(t, cloneTo("copy", ask), options...)
			if err != nil {
				t.Fatal(err)
			}
			spec := &vm.Spec.Template.Spec
			if got := spec.Domain.Devices.Interfaces; len(got) != 1 || got[0].Name != "default" || got[0].MacAddress != "02-00-00-00-00-09" {
				t.Errorf("the interfaces are %+v", got)
			}
			if spec.Domain.Firmware.Serial != "s-9" || spec.Domain.Firmware.UUID != "" {
				t.Errorf("the firmware is %+v", spec.Domain.Firmware)
			}
		})
	}
	snapshot, content := taken()
	restore, err := newRestore(cloneTo("copy", ask), snapshot, content)
	if err != nil || *restore.Spec.VolumeRestorePolicy != snapshotv1.VolumeRestorePolicyPrefixTargetName || restore.Spec.Target.Name != "copy" || restore.Name != "tmp-restore-1f3a-2" {
		t.Errorf("the restore is %+v, %v", restore, err)
	}
}

// A VM that takes the name of one that was renamed, or deleted, is not taken for it.
func TestAnOldName(t *testing.T) {
	old := guestid.MAC("shop", "copy", "default").String()
	vm, err := planned(t, cloneTo("copy"), nics("default", old), annotated(guestid.AnnotationName, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	meta := vm.Spec.Template.ObjectMeta
	if got := vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress; got == "" || got == old || meta.Annotations[guestid.AnnotationName] != "clone-1f3a-2" {
		t.Errorf("the address is %q, the guest is known as %v", got, meta.Annotations)
	}
	fromSnapshot := cloneTo("web", func(s *clonev1.VirtualMachineCloneSpec) { s.Source.Kind, s.Source.Name = kindSnapshot, "s" })
	vm, err = planned(t, fromSnapshot, nics())
	if err != nil {
		t.Fatal(err)
	}
	spec := &vm.Spec.Template.Spec
	if got := spec.Domain.Devices.Interfaces; len(got) != 1 || got[0].MacAddress == "" || got[0].MacAddress == guestid.MAC("shop", "web", "default").String() || len(spec.Networks) != 1 {
		t.Errorf("the interfaces are %+v, %+v", got, spec.Networks)
	}
	if spec.Domain.Firmware.UUID != "" || vm.Spec.Template.ObjectMeta.Annotations[guestid.AnnotationName] != "clone-1f3a-2" {
		t.Errorf("the VM is %+v", vm.Spec.Template)
	}
}

func TestNoTwoMachinesAreTheSame(t *testing.T) {
	patch := func(text string) func(*clonev1.VirtualMachineCloneSpec) {
		return func(s *clonev1.VirtualMachineCloneSpec) { s.Patches = []string{text} }
	}
	firmware := `{"op":"add","path":"/spec/template/spec/domain/firmware","value":{"uuid":"%s"}}`
	for name, c := range map[string]struct {
		change func(*clonev1.VirtualMachineCloneSpec)
		want   string
	}{
		"an address": {func(s *clonev1.VirtualMachineCloneSpec) {
			s.NewMacAddresses = map[string]string{"a": "02-00-00-00-00-01"}
		}, "spec.newMacAddresses"},
		"another's address": {func(s *clonev1.VirtualMachineCloneSpec) {
			s.NewMacAddresses = map[string]string{"b": "02:00:00:00:00:01"}
		}, "that of interface a of VirtualMachine web"},
		"a patched address": {patch(`{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/1/macAddress","value":"02:00:00:00:00:01"}`), "that of interface a"},
		"no such interface": {func(s *clonev1.VirtualMachineCloneSpec) {
			s.NewMacAddresses = map[string]string{"c": "02:00:00:00:00:02"}
		}, "names interface c, which the VirtualMachine does not have; it has a, b"},
		"a serial number":    {func(s *clonev1.VirtualMachineCloneSpec) { s.NewSMBiosSerial = new("s-1") }, "spec.newSMBiosSerial"},
		"a UUID":             {patch(fmt.Sprintf(firmware, "11111111-1111-1111-1111-111111111111")), "the firmware UUID of VirtualMachine web"},
		"a patch of nothing": {patch(`{"op":"remove","path":"/spec/nowhere"}`), "spec.patches cannot be applied to VirtualMachine copy"},
		"no template":        {patch(`{"op":"remove","path":"/spec/template"}`), "without a template"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := planned(t, cloneTo("copy", c.change), nics("a", "02:00:00:00:00:01", "b", ""), numbered)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	_, err := planned(t, cloneTo("copy", patch(fmt.Sprintf(firmware, virtualmachine.FirmwareUUID(uid)))), nics("a", ""))
	if err == nil || !strings.Contains(err.Error(), "firmware UUID") {
		t.Errorf("a UUID that followed from the old VM's uid: %v", err)
	}
}

func TestFiltersSayWhatIsKept(t *testing.T) {
	all := []string{"app", "app.kubernetes.io/name", "some/key", "some/key2"}
	for name, c := range map[string]struct{ filters, want []string }{
		"none":                         {nil, all},
		"an empty list":                {[]string{}, nil},
		"all":                          {[]string{"*"}, all},
		"a key":                        {[]string{"some/key"}, []string{"some/key"}},
		"the beginning of keys":        {[]string{"some/*"}, []string{"some/key", "some/key2"}},
		"all but a key":                {[]string{"!some/key", "*"}, []string{"app", "app.kubernetes.io/name", "some/key2"}},
		"all but the beginning of one": {[]string{"*", "!app*"}, []string{"some/key", "some/key2"}},
		"nothing but what is not":      {[]string{"!app"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.DeleteFunc(slices.Clone(all), func(key string) bool { return !keeps(c.filters, key) })
			if !slices.Equal(got, c.want) {
				t.Errorf("kept are %v, want %v", got, c.want)
			}
		})
	}
}

func TestLabelsAndAnnotationsAreFiltered(t *testing.T) {
	both := map[string]string{"keep/a~b": "1", "drop/c": "2"}
	said := func(vm *virtv1.VirtualMachine) {
		vm.Labels, vm.Annotations = both, map[string]string{"keep/a": "1", "drop/c~d": "2", virtualmachinerestore.AnnotationLast: "before"}
		vm.Spec.Template.ObjectMeta.Labels, vm.Spec.Template.ObjectMeta.Annotations = both, map[string]string{"drop/e": "3"}
	}
	filter := func(s *clonev1.VirtualMachineCloneSpec) {
		filters := []string{"keep/*"}
		s.LabelFilters, s.AnnotationFilters, s.Template.LabelFilters, s.Template.AnnotationFilters = filters, filters, filters, filters
	}
	vm, err := planned(t, cloneTo("copy", filter), said)
	if err != nil {
		t.Fatal(err)
	}
	template := vm.Spec.Template.ObjectMeta
	if len(vm.Labels) != 1 || vm.Labels["keep/a~b"] != "1" || len(template.Labels) != 1 || len(template.Annotations) != 0 ||
		len(vm.Annotations) != 2 || vm.Annotations["keep/a"] != "1" || vm.Annotations[virtualmachinerestore.AnnotationLast] != "tmp-restore-1f3a-2-" {
		t.Errorf("kept are %v, %v, %v", vm.Labels, vm.Annotations, template)
	}
}

func TestTheTargetHasAName(t *testing.T) {
	if got := targetName(cloneTo("")); got != "clone-web-1f3a" {
		t.Errorf("got %s", got)
	}
	long := cloneTo("", func(s *clonev1.VirtualMachineCloneSpec) { s.Source.Name = strings.Repeat("x", 250) })
	if got := targetName(long); got != "clone-object-1f3a" {
		t.Errorf("got %s", got)
	}
}
