//go:build integration

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newReplicaSet(namespace string) *virtv1.VirtualMachineInstanceReplicaSet {
	set := &virtv1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	set.Spec.Replicas = new(int32(2))
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Template = newVM(namespace, "web").Spec.Template
	set.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
	return set
}

// setIs waits until the set's status and the number of its instances that stay are so.
func (c *cluster) setIs(t *testing.T, set *virtv1.VirtualMachineInstanceReplicaSet, want string) []virtv1.VirtualMachineInstance {
	t.Helper()
	var found []virtv1.VirtualMachineInstance
	gomega.NewWithT(t).Eventually(func() (string, error) {
		list := &virtv1.VirtualMachineInstanceList{}
		if err := c.List(t.Context(), list, client.InNamespace(set.Namespace)); err != nil {
			return "", err
		}
		found = slices.DeleteFunc(list.Items, func(vmi virtv1.VirtualMachineInstance) bool { return vmi.DeletionTimestamp != nil })
		err := c.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		text := fmt.Sprintf("%d there, %d counted, %d ready", len(found), set.Status.Replicas, set.Status.ReadyReplicas)
		for _, condition := range set.Status.Conditions {
			text += ", " + string(condition.Type)
		}
		return text, err
	}, bound, "50ms").Should(gomega.Equal(want), "replica set %s/%s", set.Namespace, set.Name)
	return found
}

// runInstance brings an instance that has no node yet to Running.
func (c *cluster) runInstance(t *testing.T, key client.ObjectKey) {
	t.Helper()
	p := c.launcher(t, key)
	c.bind(t, p, nodeName)
	c.vmiSays(t, key, string(virtv1.Scheduling), phase)
	c.report(t, p, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.guestRuns(t, key)
}

func TestAReplicaSetKeepsItsNumber(t *testing.T) {
	c := start(t)
	set := newReplicaSet(c.namespace(t))
	must(t, c.Create(t.Context(), set))
	for _, vmi := range c.setIs(t, set, "2 there, 2 counted, 0 ready") {
		c.runInstance(t, client.ObjectKeyFromObject(&vmi))
	}
	made := c.setIs(t, set, "2 there, 2 counted, 2 ready")

	failed := client.ObjectKeyFromObject(&made[0])
	pod := c.launcher(t, failed)
	must(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	c.gone(t, &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: failed.Namespace, Name: failed.Name}})
	c.setIs(t, set, "2 there, 2 counted, 1 ready")

	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))
	must(t, c.SubResource("scale").Patch(t.Context(), set, patch, client.WithSubResourceBody(scale)))
	if left := c.setIs(t, set, "1 there, 1 counted, 1 ready"); left[0].UID != made[1].UID {
		t.Error("the one that runs is gone")
	}

	must(t, c.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true,"replicas":3}}`))))
	c.setIs(t, set, "1 there, 1 counted, 1 ready, ReplicaPaused")
	must(t, c.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":false}}`))))
	c.setIs(t, set, "3 there, 3 counted, 1 ready")
}

// An instance that is relabelled is replaced, and comes back when it has the label again.
func TestAReplicaSetLetsGoAndTakesBack(t *testing.T) {
	c := start(t)
	set := newReplicaSet(c.namespace(t))
	must(t, c.Create(t.Context(), set))
	made := c.setIs(t, set, "2 there, 2 counted, 0 ready")
	label := func(value string) {
		t.Helper()
		must(t, c.Patch(t.Context(), &made[0], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"`+value+`"}}}`))))
	}
	label("study")
	c.setIs(t, set, "3 there, 2 counted, 0 ready")
	gomega.NewWithT(t).Eventually(func() (*metav1.OwnerReference, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(&made[0]), &made[0])
		return metav1.GetControllerOf(&made[0]), err
	}, bound, "50ms").Should(gomega.BeNil(), "it is let go")
	label("web")
	c.setIs(t, set, "2 there, 2 counted, 0 ready")
}

func TestABadReplicaSetIsRefused(t *testing.T) {
	c := start(t)
	ns := c.namespace(t)
	for want, change := range map[string]func(*virtv1.VirtualMachineInstanceReplicaSet){
		"spec.selector: Invalid value": func(set *virtv1.VirtualMachineInstanceReplicaSet) {
			set.Spec.Selector.MatchLabels["app"] = "shop"
		},
		"spec.template.spec.domain.memory.guest": func(set *virtv1.VirtualMachineInstanceReplicaSet) {
			set.Spec.Template.Spec.Domain.Memory = nil
		},
	} {
		set := newReplicaSet(ns)
		change(set)
		if err := c.Create(t.Context(), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it is answered %v, want %s", err, want)
		}
	}
}
