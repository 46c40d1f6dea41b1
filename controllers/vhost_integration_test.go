//go:build integration

package controllers

import (
	"context"
	"fmt"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// A VM asks for /dev/vhost-net where its nodes have it, and never so that it fits on fewer of them.
func TestAVMAsksForVhostNetWhereAllItsNodesHaveIt(t *testing.T) {
	c := start(t)
	pooled := func(name string, devices ...string) {
		node := c.makeNode(t, name, alive(), corev1.ConditionTrue)
		t.Cleanup(func() { must(t, c.Delete(context.WithoutCancel(t.Context()), node)) })
		must(t, c.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pool":"`+name[:4]+`"}}}`))))
		for _, device := range devices {
			patch := fmt.Sprintf(`{"status":{"capacity":{%q:"1000"}}}`, device)
			must(t, c.Status().Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
		}
	}
	pooled("both-1", names.DeviceKVM, names.DeviceVhostNet)
	pooled("both-2", names.DeviceKVM)
	pooled("fast-1", names.DeviceKVM, names.DeviceVhostNet) // the last, so that virt-controller has seen the others when it has seen this one
	asks := func(pool string) (bool, bool) {
		vm := newVM(c.namespace(t), "vhost")
		vm.Spec.Template.Spec.NodeSelector = map[string]string{"pool": pool}
		vm.Spec.Template.Spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
		vm.Spec.Template.Spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
		must(t, c.Create(t.Context(), vm))
		limits := c.launcher(t, client.ObjectKeyFromObject(vm)).Spec.Containers[0].Resources.Limits
		must(t, c.Delete(t.Context(), vm))
		_, kvm := limits[names.DeviceKVM]
		_, vhost := limits[names.DeviceVhostNet]
		return kvm, vhost
	}
	gomega.NewWithT(t).Eventually(func() bool { // once virt-controller has seen the nodes
		kvm, vhost := asks("fast")
		return kvm && vhost
	}, bound, "200ms").Should(gomega.BeTrue(), "the pod asks for KVM and vhost-net")
	if kvm, vhost := asks("both"); !kvm || vhost {
		t.Errorf("where one node lacks it: KVM %t, vhost-net %t", kvm, vhost)
	}
}
