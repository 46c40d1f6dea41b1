//go:build integration

package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newPool(namespace string) *poolv1.VirtualMachinePool {
	labels := map[string]string{"app": "web"}
	return &poolv1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: poolv1.VirtualMachinePoolSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			VirtualMachineTemplate: &poolv1.VirtualMachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newVM(namespace, "web").Spec,
			},
		},
	}
}

// poolIs waits until the pool's status is so.
func (c *cluster) poolIs(t *testing.T, pool *poolv1.VirtualMachinePool, want string) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() (string, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)
		text := fmt.Sprintf("%d counted, %d ready", pool.Status.Replicas, pool.Status.ReadyReplicas)
		for _, condition := range pool.Status.Conditions {
			text += ", " + string(condition.Type)
		}
		return text, err
	}, bound, "50ms").Should(gomega.Equal(want), "pool %s/%s", pool.Namespace, pool.Name)
}

// A pool's guests run, and one after the other is asked to restart with a new template.
func TestAPoolKeepsItsNumberAndItsTemplate(t *testing.T) {
	c := start(t)
	pool := newPool(c.namespace(t))
	must(t, c.Create(t.Context(), pool))
	c.poolIs(t, pool, "2 counted, 0 ready")
	for _, name := range []string{"web-0", "web-1"} {
		c.runInstance(t, client.ObjectKey{Namespace: pool.Namespace, Name: name})
	}
	c.poolIs(t, pool, "2 counted, 2 ready")

	patch := `{"spec":{"maxUnavailable":1,"virtualMachineTemplate":{"spec":{"template":{"metadata":{"annotations":{"round":"two"}}}}}}}`
	must(t, c.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(patch))))
	gomega.NewWithT(t).Eventually(func() string {
		going, updated := 0, 0
		vms, vmis := &virtv1.VirtualMachineList{}, &virtv1.VirtualMachineInstanceList{}
		must(t, c.List(t.Context(), vms, client.InNamespace(pool.Namespace)))
		must(t, c.List(t.Context(), vmis, client.InNamespace(pool.Namespace)))
		for i := range vms.Items {
			if vms.Items[i].Spec.Template.ObjectMeta.Annotations["round"] == "two" {
				updated++
			}
		}
		for i := range vmis.Items {
			if vmis.Items[i].DeletionTimestamp != nil {
				going++
			}
		}
		return fmt.Sprintf("%d updated, %d going", updated, going)
	}, bound, "50ms").Should(gomega.Equal("2 updated, 1 going"), "one guest is stopped at a time")
}

func TestABadPoolIsRefused(t *testing.T) {
	c := start(t)
	ns := c.namespace(t)
	for want, change := range map[string]func(*poolv1.VirtualMachinePoolSpec){
		"spec.selector: Invalid value": func(spec *poolv1.VirtualMachinePoolSpec) {
			spec.Selector.MatchLabels = map[string]string{"app": "shop"}
		},
		"spec.virtualMachineTemplate.spec.template.spec.domain.memory.guest": func(spec *poolv1.VirtualMachinePoolSpec) {
			spec.VirtualMachineTemplate.Spec.Template.Spec.Domain.Memory = nil
		},
	} {
		pool := newPool(ns)
		change(&pool.Spec)
		if err := c.Create(t.Context(), pool); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it is answered %v, want %s", err, want)
		}
	}
}
