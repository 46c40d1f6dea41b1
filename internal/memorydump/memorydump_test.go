package memorydump_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/memorydump"
)

func TestAClaimHoldsTheGuestsMemoryAndMore(t *testing.T) {
	quantity := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	list := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	for name, c := range map[string]struct {
		domain virtv1.DomainSpec
		status *virtv1.MemoryStatus
		want   int64
	}{
		"the guest's memory is said":      {domain: virtv1.DomainSpec{Memory: &virtv1.Memory{Guest: quantity("128Mi")}}, want: 228 << 20},
		"it is the pod's request":         {domain: virtv1.DomainSpec{Resources: virtv1.ResourceRequirements{Requests: list("1Gi"), Limits: list("2Gi")}}, want: 1124 << 20},
		"it is the pod's limit":           {domain: virtv1.DomainSpec{Resources: virtv1.ResourceRequirements{Limits: list("2Gi")}}, want: 2148 << 20},
		"the guest got more since":        {domain: virtv1.DomainSpec{Memory: &virtv1.Memory{Guest: quantity("128Mi")}}, status: &virtv1.MemoryStatus{GuestRequested: quantity("256Mi")}, want: 356 << 20},
		"the guest is to get more as yet": {domain: virtv1.DomainSpec{Memory: &virtv1.Memory{Guest: quantity("256Mi")}}, status: &virtv1.MemoryStatus{GuestRequested: quantity("128Mi")}, want: 356 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{Spec: virtv1.VirtualMachineInstanceSpec{Domain: c.domain}, Status: virtv1.VirtualMachineInstanceStatus{Memory: c.status}}
			if got := memorydump.Size(vmi); got != c.want {
				t.Errorf("the dump takes %d, want %d", got, c.want)
			}
			if got := memorydump.ClaimSize(vmi, 0.5); got != c.want*3/2 {
				t.Errorf("the claim is %d", got)
			}
		})
	}
}
