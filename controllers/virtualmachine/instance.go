package virtualmachine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationTemplate on a VMI is the digest of the part of its VM that it was made from, or
// has taken up since, by which a VM knows that it was changed.
const AnnotationTemplate = names.Domain + "template-digest"

// firmwareSpace is the name space in which a VM's uid becomes its firmware's UUID.
var firmwareSpace = uuid.MustParse("2b9a2f0e-8f0f-4a39-9d1c-5d6a3c8f7b10")

// parts are what a VMI is made from.
type parts struct {
	vm                             *virtv1.VirtualMachine
	instancetypeRef, preferenceRef instancetype.Reference
	instancetype                   *v1beta1.VirtualMachineInstancetypeSpec
	preference                     *v1beta1.VirtualMachinePreferenceSpec
	// instancetypeObject and preferenceObject are what these were read from; nil where a revision holds them.
	instancetypeObject, preferenceObject client.Object
	// paused: the guest is to stand still until it is unpaused.
	paused bool
}

// instance makes the VMI of a VM.
func instance(p parts) (*virtv1.VirtualMachineInstance, error) {
	if p.vm.Spec.Template == nil {
		return nil, fmt.Errorf("missing virtual machine template")
	}
	digest, err := templateDigest(p.vm)
	if err != nil {
		return nil, err
	}
	template := p.vm.Spec.Template.DeepCopy()
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name:            p.vm.Name,
			Namespace:       p.vm.Namespace,
			Labels:          template.ObjectMeta.Labels,
			Annotations:     annotations(p, digest),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.vm, virtv1.VirtualMachineGroupVersionKind)},
			Finalizers:      []string{virtv1.VirtualMachineInstanceFinalizer},
		},
		Spec: *hotplug.WithoutDumps(&template.Spec),
	}
	if p.paused {
		vmi.Spec.StartStrategy = new(virtv1.StartStrategyPaused)
	}
	defaults.Disks(&vmi.Spec)
	defaults.Interface(&vmi.Spec)
	errs := instancetype.Apply(vmi, p.instancetype, p.preference, field.NewPath("spec", "template", "spec"))
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("applying instance type and preference: %w", err)
	}
	vmi.Spec.Domain.Firmware = firmwareOf(vmi.Spec.Domain.Firmware, p.vm)
	return vmi, nil
}

func annotations(p parts, digest string) map[string]string {
	all := maps.Clone(p.vm.Spec.Template.ObjectMeta.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	all[virtv1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(p.vm.Generation, 10)
	all[AnnotationTemplate] = digest
	note := func(ref instancetype.Reference, cluster, own, clusterKind string) {
		switch {
		case ref.Name == "":
		case ref.Kind == clusterKind:
			all[cluster] = ref.Name
		default:
			all[own] = ref.Name
		}
	}
	note(p.instancetypeRef, virtv1.ClusterInstancetypeAnnotation, virtv1.InstancetypeAnnotation, instancetype.KindClusterInstancetype)
	note(p.preferenceRef, virtv1.ClusterPreferenceAnnotation, virtv1.PreferenceAnnotation, instancetype.KindClusterPreference)
	return all
}

// firmwareOf gives the guest of vm the same UUID at every start: a guest takes a new one
// for a new machine, and licences and cloud-init with it.
func firmwareOf(firmware *virtv1.Firmware, vm *virtv1.VirtualMachine) *virtv1.Firmware {
	if firmware == nil {
		firmware = &virtv1.Firmware{}
	}
	if firmware.UUID == "" {
		firmware.UUID = FirmwareUUID(vm.UID)
	}
	return firmware
}

// FirmwareUUID is that of the guest of a VM of this uid that names none.
func FirmwareUUID(vm types.UID) types.UID {
	return types.UID(uuid.NewSHA1(firmwareSpace, []byte(vm)).String())
}

// templateDigest is the digest of what a running VMI cannot take up from its VM.
func templateDigest(vm *virtv1.VirtualMachine) (string, error) {
	template := vm.Spec.Template
	if template != nil {
		template = template.DeepCopy()
		template.Spec = *hotplug.Fixed(&template.Spec)
	}
	data, err := json.Marshal([]any{template, vm.Spec.Instancetype, vm.Spec.Preference})
	if err != nil {
		return "", fmt.Errorf("encoding the template of %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}
