package virtualmachineclone

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/internal/guestid"
)

// Where a VM says what its guest is known by.
const (
	pathDomain     = "/spec/template/spec/domain"
	pathInterfaces = pathDomain + "/devices/interfaces"
	pathNetworks   = "/spec/template/spec/networks"
	pathTemplate   = "/spec/template/metadata"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func set(path string, value any) operation { return operation{Op: "add", Path: path, Value: value} }

func remove(path, key string) operation {
	return operation{Op: "remove", Path: path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)}
}

// patches are what makes plain, which is was under clone's name, a machine of its own: without was's addresses, UUID and serial numbers, and
// with those labels and annotations that clone's filters keep. A field that a machine is known by is there afterwards, be it
// empty, for patches of users that replace it.
func patches(clone *clonev1.VirtualMachineClone, was *snapshotv1.VirtualMachine, plain *virtv1.VirtualMachine) ([]string, error) {
	all, err := addresses(clone, was, plain)
	if err != nil {
		return nil, err
	}
	all = append(all, numbers(clone, plain)...)
	all = append(all, guestName(clone, was, plain)...)
	spec, template := &clone.Spec, &plain.Spec.Template.ObjectMeta
	all = append(all, removals("/metadata/labels", plain.Labels, spec.LabelFilters)...)
	all = append(all, removals("/metadata/annotations", plain.Annotations, spec.AnnotationFilters)...)
	all = append(all, removals(pathTemplate+"/labels", template.Labels, spec.Template.LabelFilters)...)
	all = append(all, removals(pathTemplate+"/annotations", template.Annotations, spec.Template.AnnotationFilters)...)
	encoded := make([]string, 0, len(all))
	for _, op := range all {
		data, err := json.Marshal(op)
		if err != nil {
			return nil, fmt.Errorf("encoding the patch of %s: %w", op.Path, err)
		}
		encoded = append(encoded, string(data))
	}
	return encoded, nil
}

// addresses gives every interface the address that clone has for it, or none. One that would follow from the VM's name
// and is was's, which may have had that name before, becomes one that follows from clone's uid.
func addresses(clone *clonev1.VirtualMachineClone, was *snapshotv1.VirtualMachine, plain *virtv1.VirtualMachine) ([]operation, error) {
	spec := plain.Spec.Template.Spec.DeepCopy()
	implied := len(spec.Domain.Devices.Interfaces) == 0
	defaults.Interface(spec)
	nics := spec.Domain.Devices.Interfaces
	if err := known(clone, nics); err != nil {
		return nil, err
	}
	taken := macs(was.Namespace, was.Name, &was.Spec.Template.Spec)
	var all []operation
	named := false
	for i := range nics {
		nic := &nics[i]
		nic.MacAddress = clone.Spec.NewMacAddresses[nic.Name]
		if _, same := taken[guestid.MAC(plain.Namespace, plain.Name, nic.Name).String()]; same && guestid.MACFollows(nic) {
			nic.MacAddress = guestid.MAC(plain.Namespace, string(clone.UID), nic.Name).String()
		}
		named = named || nic.MacAddress != ""
		all = append(all, set(fmt.Sprintf("%s/%d/macAddress", pathInterfaces, i), nic.MacAddress))
	}
	switch {
	case implied && named:
		return []operation{set(pathInterfaces, nics), set(pathNetworks, spec.Networks)}, nil
	case implied:
		return nil, nil
	}
	return all, nil
}

// known refuses addresses of interfaces that there are not.
func known(clone *clonev1.VirtualMachineClone, nics []virtv1.Interface) error {
	var there []string
	for i := range nics {
		there = append(there, nics[i].Name)
	}
	for _, name := range slices.Sorted(maps.Keys(clone.Spec.NewMacAddresses)) {
		if !slices.Contains(there, name) {
			return fmt.Errorf("spec.newMacAddresses names interface %s, which the VirtualMachine does not have; it has %s", name, strings.Join(there, ", "))
		}
	}
	return nil
}

// macs are the addresses of the interfaces of a VM, with their names, but for those that are their pod's.
func macs(namespace, name string, spec *virtv1.VirtualMachineInstanceSpec) map[string]string {
	spec = spec.DeepCopy()
	defaults.Interface(spec)
	all := map[string]string{}
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		mac, err := net.ParseMAC(nic.MacAddress)
		if err != nil && !guestid.MACFollows(nic) {
			continue
		}
		if err != nil {
			mac = guestid.MAC(namespace, name, nic.Name)
		}
		all[mac.String()] = nic.Name
	}
	return all
}

// numbers take the UUID and the serial numbers away; the system's becomes the one that clone has.
func numbers(clone *clonev1.VirtualMachineClone, plain *virtv1.VirtualMachine) []operation {
	var all []operation
	domain, serial := &plain.Spec.Template.Spec.Domain, ptr.Deref(clone.Spec.NewSMBiosSerial, "")
	switch {
	case domain.Firmware != nil:
		all = append(all, set(pathDomain+"/firmware/uuid", ""), set(pathDomain+"/firmware/serial", serial))
	case serial != "":
		all = append(all, set(pathDomain+"/firmware", virtv1.Firmware{Serial: serial}))
	}
	if domain.Chassis != nil && domain.Chassis.Serial != "" {
		all = append(all, set(pathDomain+"/chassis/serial", ""))
	}
	return all
}

// guestName makes cloud-init know the guest for a new one: it goes by a name that was may have from a VM that it was renamed from.
func guestName(clone *clonev1.VirtualMachineClone, was *snapshotv1.VirtualMachine, plain *virtv1.VirtualMachine) []operation {
	var all []operation
	annotations := plain.Spec.Template.ObjectMeta.Annotations
	if _, noted := annotations[guestid.AnnotationName]; noted {
		all = append(all, remove(pathTemplate+"/annotations", guestid.AnnotationName))
	}
	if plain.Name != guestOf(was.Name, &was.Spec) {
		return all
	}
	name := "clone-" + string(clone.UID)
	if len(annotations) == 0 {
		return append(all, set(pathTemplate+"/annotations", map[string]string{guestid.AnnotationName: name}))
	}
	again := remove(pathTemplate+"/annotations", guestid.AnnotationName)
	return append(all, set(again.Path, name))
}

func guestOf(name string, spec *virtv1.VirtualMachineSpec) string {
	return guestid.Name(&metav1.ObjectMeta{Name: name, Annotations: spec.Template.ObjectMeta.Annotations})
}

// removals take away the keys of labels or annotations, at path, that filters do not keep. What Slipway itself says there stays.
func removals(path string, keys map[string]string, filters []string) []operation {
	var all []operation
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if key != virtualmachinerestore.AnnotationLast && key != guestid.AnnotationName && !keeps(filters, key) {
			all = append(all, remove(path, key))
		}
	}
	return all
}

// keeps says whether filters keep key. A filter is a key, or what a key begins with and "*"; one that begins with "!" takes away,
// whatever the others keep. Without filters every key is kept.
func keeps(filters []string, key string) bool {
	kept := filters == nil
	for _, filter := range filters {
		filter, negated := strings.CutPrefix(filter, "!")
		prefix, open := strings.CutSuffix(filter, "*")
		switch matches := filter == key || open && strings.HasPrefix(key, prefix); {
		case matches && negated:
			return false
		case matches:
			kept = true
		}
	}
	return kept
}

// distinct refuses a VM that would be known by what was, of uid source, is known by: patches may have given it that.
func distinct(was *snapshotv1.VirtualMachine, source *types.UID, planned *virtv1.VirtualMachine) error {
	if planned.Spec.Template == nil {
		return fmt.Errorf("spec.patches leave VirtualMachine %s without a template", planned.Name)
	}
	before, after := &was.Spec.Template.Spec, &planned.Spec.Template.Spec
	taken := macs(was.Namespace, was.Name, before)
	for mac, nic := range macs(planned.Namespace, planned.Name, after) {
		if other, same := taken[mac]; same {
			return fmt.Errorf("interface %s would have the address %s, which is that of interface %s of VirtualMachine %s; write another in spec.newMacAddresses",
				nic, mac, other, was.Name)
		}
	}
	old, next := ptr.Deref(before.Domain.Firmware, virtv1.Firmware{}), ptr.Deref(after.Domain.Firmware, virtv1.Firmware{})
	if old.UUID == "" && source != nil {
		old.UUID = virtualmachine.FirmwareUUID(*source)
	}
	switch {
	case next.UUID != "" && strings.EqualFold(string(next.UUID), string(old.UUID)):
		return fmt.Errorf("the new VirtualMachine would have the firmware UUID of VirtualMachine %s; remove it from spec.patches", was.Name)
	case next.Serial != "" && next.Serial == old.Serial:
		return fmt.Errorf("the new VirtualMachine would have the serial number of VirtualMachine %s; write another in spec.newSMBiosSerial", was.Name)
	case guestOf(planned.Name, &planned.Spec) == guestOf(was.Name, &was.Spec):
		return fmt.Errorf("the new VirtualMachine's guest would be known as VirtualMachine %s's; remove %s from spec.patches", was.Name, guestid.AnnotationName)
	}
	return nil
}
