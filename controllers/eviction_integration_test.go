//go:build integration

package controllers

import (
	"context"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// runEvicting runs a VM of that eviction strategy, of none when it is empty.
func (c *cluster) runEvicting(t *testing.T, name string, strategy virtv1.EvictionStrategy) (client.ObjectKey, *corev1.Pod) {
	t.Helper()
	vm := newVM(c.namespace(t), name)
	if strategy != "" {
		vm.Spec.Template.Spec.EvictionStrategy = &strategy
	}
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	return key, c.startGuest(t, key)
}

func (c *cluster) evict(t *testing.T, p *corev1.Pod) error {
	t.Helper()
	return c.SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
}

// denied wants an eviction to be refused so that drains try it again, in these words.
func denied(t *testing.T, err error, words string) {
	t.Helper()
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want it denied: %s", err, words)
	}
}

func (c *cluster) hasBudget(t *testing.T, key client.ObjectKey, want bool) {
	t.Helper()
	budget := pod.Budget(c.vmi(t, key))
	gomega.NewWithT(t).Eventually(func() (bool, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(budget), &policyv1.PodDisruptionBudget{})
		return err == nil, client.IgnoreNotFound(err)
	}, bound, "100ms").Should(gomega.Equal(want), "disruption budget of %s", key)
}

func TestAnEvictionOfAGuestThatIsToMigrateIsDenied(t *testing.T) {
	c := start(t)
	key, p := c.runEvicting(t, "moves", virtv1.EvictionStrategyLiveMigrate)
	denied(t, c.evict(t, p), "VMI moves is configured with an eviction strategy but is not live-migratable; there is no live migration yet: stop the virtual machine")
	c.hasBudget(t, key, true)
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	if p.DeletionTimestamp != nil {
		t.Error("the pod is being deleted")
	}
}

// A budget would keep the pod of a guest that has ended on a node that is drained.
func TestAGuestThatHasEndedHasNoBudget(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "over")
	vm.Spec.RunStrategy = new(virtv1.RunStrategyOnce)
	vm.Spec.Template.Spec.EvictionStrategy = new(virtv1.EvictionStrategyExternal)
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.startGuest(t, key)
	c.hasBudget(t, key, true)
	c.guestEnds(t, key, p, virtv1.Succeeded)
	c.hasBudget(t, key, false)
}

func TestAnEvictionOfAGuestWithoutAStrategyPasses(t *testing.T) {
	c := start(t)
	for name, strategy := range map[string]virtv1.EvictionStrategy{"plain": "", "none": virtv1.EvictionStrategyNone, "perhaps": virtv1.EvictionStrategyLiveMigrateIfPossible} {
		key, p := c.runEvicting(t, name, strategy)
		c.hasBudget(t, key, false)
		must(t, c.evict(t, p))
		err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p)
		if client.IgnoreNotFound(err) != nil || err == nil && p.DeletionTimestamp == nil {
			t.Errorf("%s: the pod stays: %v", name, err)
		}
	}
}

func TestAnEvictionOfAGuestThatOthersMoveIsToldThem(t *testing.T) {
	c := start(t)
	key, p := c.runEvicting(t, "external", virtv1.EvictionStrategyExternal)
	denied(t, c.evict(t, p), `Eviction triggered evacuation of VMI "`+key.String()+`"`)
	if node := c.vmi(t, key).Status.EvacuationNodeName; node != nodeName {
		t.Errorf("evacuationNodeName is %q", node)
	}
	c.vmiSays(t, key, "True EvictionRequested the guest is to leave node "+nodeName, condition(virtv1.VirtualMachineInstanceEvictionRequested))
	denied(t, c.evict(t, p), "Evacuation in progress")
}

// What the KubeVirt object says is for running guests, too, that say nothing themselves.
func TestTheClusterSaysWhatAnEvictionDoes(t *testing.T) {
	c := start(t)
	key, p := c.runEvicting(t, "as-all", "")
	say := func(value string) {
		kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: names.KubeVirtName}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"configuration":{"evictionStrategy":`+value+`}}}`))
		must(t, c.Patch(context.WithoutCancel(t.Context()), kv, patch))
	}
	t.Cleanup(func() { say("null") })
	say(`"LiveMigrate"`)
	denied(t, c.evict(t, p), "VMI as-all is configured with an eviction strategy")
	c.hasBudget(t, key, true)
	say(`"None"`)
	c.hasBudget(t, key, false)
	must(t, c.evict(t, p))
}

// A pod that only has such a name, and one that has another, are none of ours.
func TestEvictionsOfOtherPodsPass(t *testing.T) {
	c := start(t)
	ns := c.namespace(t)
	for _, name := range []string{"virt-launcher-of-somebody", "web"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "img"}}
		must(t, c.Create(t.Context(), p))
		must(t, c.evict(t, p))
	}
}
