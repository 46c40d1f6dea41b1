package pod

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Budget returns the disruption budget by which the API server itself evicts vmi's launcher pod
// never, whether virt-api answers or not.
func Budget(vmi *virtv1.VirtualMachineInstance) *policyv1.PodDisruptionBudget {
	ours := map[string]string{virtv1.CreatedByLabel: string(vmi.UID)}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "kubevirt-disruption-budget-" + string(vmi.UID),
			Namespace:       vmi.Namespace,
			Labels:          ours,
			OwnerReferences: ownedBy(vmi),
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{virtv1.CreatedByLabel: string(vmi.UID), names.LabelPod: KindLauncher}},
		},
	}
}
