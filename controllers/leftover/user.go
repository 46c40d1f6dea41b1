package leftover

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// userOf says what else needs a volume: a DataSource that is published from it, or a machine that
// stays. Empty when nothing does.
func (b *broom) userOf(ctx context.Context, object *metav1.PartialObjectMetadata) (string, error) {
	if object.Kind != "DataVolume" && object.Kind != "PersistentVolumeClaim" {
		return "", nil
	}
	sources := &cdiv1.DataSourceList{}
	if err := b.live.List(ctx, sources); err != nil {
		return "", fmt.Errorf("looking for DataSources of volume %s: %w", object.Name, err)
	}
	for i := range sources.Items {
		source := &sources.Items[i]
		pvc := source.Spec.Source.PVC
		if pvc != nil && pvc.Name == object.Name && pvc.Namespace == object.Namespace && !b.gone[source.UID] {
			return "DataSource " + source.Namespace + "/" + source.Name + " is published from it", nil
		}
	}
	machines := &virtv1.VirtualMachineList{}
	if err := b.live.List(ctx, machines, client.InNamespace(object.Namespace)); err != nil {
		return "", fmt.Errorf("looking for VirtualMachines with volume %s: %w", object.Name, err)
	}
	for i := range machines.Items {
		if vm := &machines.Items[i]; !b.gone[vm.UID] && vm.DeletionTimestamp == nil && hasDisk(vm, object.Name) {
			return "VirtualMachine " + vm.Name + " has it as a disk", nil
		}
	}
	return "", nil
}

func hasDisk(vm *virtv1.VirtualMachine, volume string) bool {
	if vm.Spec.Template == nil {
		return false
	}
	for _, v := range vm.Spec.Template.Spec.Volumes {
		switch {
		case v.DataVolume != nil && v.DataVolume.Name == volume,
			v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == volume,
			v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil && v.Ephemeral.PersistentVolumeClaim.ClaimName == volume:
			return true
		}
	}
	return false
}
