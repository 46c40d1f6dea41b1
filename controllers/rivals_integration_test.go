//go:build integration

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Of two VMs with one claim the second gets no pod before the first has ended.
func TestAClaimHasOneVMAtATime(t *testing.T) {
	c := start(t)
	ns := c.namespace(t)
	claim := c.claim(t, ns, "shop", "")
	claim.Status.Phase = corev1.ClaimBound
	must(t, c.Status().Update(t.Context(), claim))
	vms := map[string]*virtv1.VirtualMachine{}
	for _, name := range []string{"first", "second"} {
		vm := newVM(ns, name)
		vm.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{
			PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shop"}},
		}}}
		vms[name] = vm
	}
	must(t, c.Create(t.Context(), vms["first"]))
	key := client.ObjectKeyFromObject(vms["first"])
	p := c.launcher(t, key)
	c.bind(t, p, nodeName)
	c.vmiSays(t, key, string(virtv1.Scheduling), phase)

	must(t, c.Create(t.Context(), vms["second"]))
	second := client.ObjectKeyFromObject(vms["second"])
	c.vmiSays(t, second, "False PVCInUse PVC shop is in use by VirtualMachineInstance first", condition(virtv1.VirtualMachineInstanceSynchronized))
	pods := &corev1.PodList{}
	must(t, c.List(t.Context(), pods, client.InNamespace(ns)))
	if len(pods.Items) != 1 {
		t.Errorf("there are %d pods", len(pods.Items))
	}

	must(t, c.Delete(t.Context(), vms["first"]))
	_ = c.Delete(t.Context(), p, client.GracePeriodSeconds(0)) // the kubelet's part
	c.launcher(t, second)
}
