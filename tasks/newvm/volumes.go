package newvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// volume is an item of one of the parameters that add volumes.
type volume struct {
	param string
	// volume is the name in the VM, object that of the DataVolume or claim.
	volume, object string
	data, own      bool
}

// readVolumes reads the items NAME and VOLUME:NAME.
func readVolumes(call *declare.Call) ([]volume, error) {
	var volumes []volume
	var errs []error
	for _, param := range []volume{
		{param: "persistentVolumeClaims"},
		{param: "ownPersistentVolumeClaims", own: true},
		{param: "dataVolumes", data: true},
		{param: "ownDataVolumes", data: true, own: true},
	} {
		for _, item := range call.Array(param.param) {
			v := param
			before, after, split := strings.Cut(strings.TrimSpace(item), ":")
			v.volume, v.object = strings.TrimSpace(before), strings.TrimSpace(after)
			if !split {
				v.object = v.volume
			}
			if v.volume == "" {
				v.volume = v.object
			}
			switch {
			case v.object == "":
				errs = append(errs, fmt.Errorf("%s: %q names nothing; write NAME or VOLUME:NAME", v.param, item))
			case slices.ContainsFunc(volumes, func(other volume) bool { return other.volume == v.volume }):
				errs = append(errs, fmt.Errorf("%s: %q: there is already a volume %s", v.param, item, v.volume))
			}
			volumes = append(volumes, v)
		}
	}
	return volumes, errors.Join(errs...)
}

// addTo puts the volume into spec, in place of one of its name, with a disk unless there is one.
func (v volume) addTo(spec *virtv1.VirtualMachineInstanceSpec) {
	made := virtv1.Volume{Name: v.volume}
	if v.data {
		made.DataVolume = &virtv1.DataVolumeSource{Name: v.object}
	} else {
		made.PersistentVolumeClaim = &virtv1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.object},
		}
	}
	if i := slices.IndexFunc(spec.Volumes, func(other virtv1.Volume) bool { return other.Name == v.volume }); i >= 0 {
		spec.Volumes[i] = made
	} else {
		spec.Volumes = append(spec.Volumes, made)
	}
	disks := &spec.Domain.Devices.Disks
	if !slices.ContainsFunc(*disks, func(disk virtv1.Disk) bool { return disk.Name == v.volume }) {
		*disks = append(*disks, virtv1.Disk{Name: v.volume, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusVirtio}}})
	}
}

// find reads every volume's object, which must exist, and returns those that the VM shall own.
func find(ctx context.Context, call *declare.Call, namespace string, volumes []volume) ([]client.Object, error) {
	var owned []client.Object
	var errs []error
	for _, v := range volumes {
		kind, object := "PersistentVolumeClaim", client.Object(&corev1.PersistentVolumeClaim{})
		if v.data {
			kind, object = "DataVolume", &cdiv1.DataVolume{}
		}
		key := client.ObjectKey{Namespace: namespace, Name: v.object}
		if err := call.Client.Get(ctx, key, object); err != nil {
			errs = append(errs, fmt.Errorf("%s: getting %s %s: %w", v.param, kind, key, err))
			continue
		}
		if v.own {
			owned = append(owned, object)
		}
	}
	return owned, errors.Join(errs...)
}

// give makes the VM own the objects, beside whatever owns them already.
func give(ctx context.Context, call *declare.Call, vm *virtv1.VirtualMachine, owned []client.Object) error {
	owner := metav1.OwnerReference{
		APIVersion: virtv1.SchemeGroupVersion.String(), Kind: virtv1.VirtualMachineGroupVersionKind.Kind, Name: vm.Name, UID: vm.UID,
	}
	for _, object := range owned {
		fields := map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{owner}}}
		// A manager for each VM, so that a second one does not take it from the first.
		if err := apply.Fields(ctx, call.Client, object, "slipway-vm-"+string(vm.UID), fields); err != nil {
			return fmt.Errorf("giving it to VirtualMachine %s: %w", vm.Name, err)
		}
	}
	return nil
}
