//go:build e2e

package lifecycle

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a pool of VMs", func() {
	It("keeps its number under stable names, each with its disk, is scaled, and brings a new template to its guests", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		pool := newPool(ns)
		suite.Create(ctx, pool)
		poolStands(ctx, pool, 2)
		Expect(machinesOf(ctx, pool)).To(Equal([]string{"crew-0", "crew-1"}))
		expectNoWarnings(ctx, ns)
		disks := disksOf(ctx, pool)
		Expect(disks).To(HaveLen(2))
		Expect([]string{disks["data-0"].owner, disks["data-1"].owner}).To(Equal([]string{"crew-0", "crew-1"}))
		for _, name := range []string{"crew-0", "crew-1"} {
			suite.Shell(ctx, suite.RunningVMI(ctx, ns, name), "echo "+name+" > /dev/vdb; sync")
		}

		By("scaling it to one, which keeps the other's disk")
		scalePool(ctx, pool, 1)
		Eventually(machinesOf).WithArguments(ctx, pool).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
			Should(Equal([]string{"crew-0"}), "the highest number goes")
		poolStands(ctx, pool, 1)
		Expect(disksOf(ctx, pool)).To(Equal(map[string]poolDisk{"data-0": disks["data-0"], "data-1": {uid: disks["data-1"].uid}}))

		By("changing its template")
		first := suite.RunningVMI(ctx, ns, "crew-0")
		patchPool(ctx, pool, `{"spec":{"virtualMachineTemplate":{"spec":{"template":{"metadata":{"annotations":{"round":"two"}}}}}}}`)
		comesAgain(ctx, first)
		second := suite.RunningVMI(ctx, ns, "crew-0")
		Expect(second.Annotations).To(HaveKeyWithValue("round", "two"))
		poolStands(ctx, pool, 1)
		Expect(disksOf(ctx, pool)).To(HaveKeyWithValue("data-0", disks["data-0"]))

		By("deleting a VM, which takes its disk along")
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "crew-0"}}
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		comesAgain(ctx, second)
		poolStands(ctx, pool, 1)
		Expect(machinesOf(ctx, pool)).To(Equal([]string{"crew-0"}))
		Expect(disksOf(ctx, pool)["data-0"].uid).NotTo(Equal(disks["data-0"].uid))

		By("pausing it")
		patchPool(ctx, pool, `{"spec":{"paused":true}}`)
		poolIs(ctx, pool, func(pool *poolv1.VirtualMachinePool) bool {
			return len(pool.Status.Conditions) == 1 && pool.Status.Conditions[0].Type == poolv1.VirtualMachinePoolReplicaPaused
		})
		scalePool(ctx, pool, 2)
		Consistently(machinesOf).WithArguments(ctx, pool).WithContext(ctx).WithTimeout(10*time.Second).WithPolling(time.Second).
			Should(HaveLen(1), "nothing is made while it is paused")
		patchPool(ctx, pool, `{"spec":{"paused":false}}`)
		poolStands(ctx, pool, 2)
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "crew-1"), "head -n 1 /dev/vdb")).To(Equal("crew-1"), "the VM has the disk that was kept")
		Expect(disksOf(ctx, pool)).To(HaveKeyWithValue("data-1", poolDisk{uid: disks["data-1"].uid}))

		By("scaling it to one, which takes the other's disk along")
		patchPool(ctx, pool, `{"spec":{"scaleInStrategy":{"proactive":{"selectionPolicy":{"sortPolicy":"AscendingOrder"},"statePreservation":"Disabled"}}}}`)
		scalePool(ctx, pool, 1)
		Eventually(machinesOf).WithArguments(ctx, pool).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
			Should(Equal([]string{"crew-1"}), "the lowest number goes")
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data-0"}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, claim, suite.BoundEnd)).To(Succeed())

		By("deleting it")
		Expect(suite.World.Client.Delete(ctx, pool, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, pool, suite.BoundEnd)).To(Succeed())
		Expect(machinesOf(ctx, pool)).To(BeEmpty(), "a deletion in the foreground waits for the VMs")
		Expect(disksOf(ctx, pool)).To(Equal(map[string]poolDisk{"data-1": {uid: disks["data-1"].uid}}), "what was kept is nobody's")
	}, SpecTimeout(40*time.Minute))
})

var _ = Describe("a pool that keeps the disks of VMs that are deleted", func() {
	It("gives them to the next VM of the name, and holds no VM when it goes", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		pool := newPool(ns)
		pool.Spec.Replicas = new(int32(1))
		pool.Spec.ScaleInStrategy = &poolv1.VirtualMachinePoolScaleInStrategy{
			Opportunistic: &poolv1.VirtualMachinePoolOpportunisticScaleInStrategy{StatePreservation: new(poolv1.StatePreservationOffline)},
		}
		pool.Spec.VirtualMachineTemplate.Spec = fixture.VM(ns, "crew", fixture.Strategy(virtv1.RunStrategyHalted),
			fixture.Template("data", fixture.DataVolume(ns, "data", "16Mi"))).Spec
		pool.Spec.VirtualMachineTemplate.Spec.DataVolumeTemplates[0].Annotations = map[string]string{names.AnnotationBind: "true"} // no guest does it
		suite.Create(ctx, pool)
		disk := suite.DataVolume(ctx, ns, "data-0", cdiv1.Succeeded)
		vm := suite.VMStatus(ctx, ns, "crew-0", virtv1.VirtualMachineStatusStopped)

		By("deleting its VM")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		madeAnew(ctx, vm)
		suite.VMStatus(ctx, ns, "crew-0", virtv1.VirtualMachineStatusStopped)
		Expect(suite.DataVolume(ctx, ns, "data-0", cdiv1.Succeeded).UID).To(Equal(disk.UID), "the disk that there was")

		By("deleting the pool")
		Expect(suite.World.Client.Delete(ctx, pool, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, pool, suite.BoundEnd)).To(Succeed())
		Expect(machinesOf(ctx, pool)).To(BeEmpty())
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("a pool with autohealing", func() {
	It("makes a VM anew that does not start, and leaves it alone once it does", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		pool := newPool(ns)
		pool.Spec.Replicas = new(int32(1))
		pool.Spec.Autohealing = &poolv1.VirtualMachinePoolAutohealingStrategy{MinFailingToStartDuration: &metav1.Duration{Duration: 10 * time.Second}}
		pool.Spec.VirtualMachineTemplate.Spec = fixture.VM(ns, "crew", fixture.Claim("data", "shared")).Spec // without a system, so that nothing boots
		suite.Create(ctx, pool)
		vm := suite.VMStatus(ctx, ns, "crew-0", virtv1.VirtualMachineStatusPvcNotFound)
		madeAnew(ctx, vm)
		Eventually(func(g Gomega) {
			var events corev1.EventList
			g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(ns))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(
				HaveField("InvolvedObject.Name", "crew"), HaveField("Reason", "Autohealing"), HaveField("Message", ContainSubstring("it is ErrorPvcNotFound since")))))
		}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())

		By("making what it lacks")
		suite.Create(ctx, fixture.DataVolume(ns, "shared", "16Mi"))
		started := suite.VMStatus(ctx, ns, "crew-0", virtv1.VirtualMachineStatusRunning)
		poolStands(ctx, pool, 1)
		Consistently(func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(started), vm)).To(Succeed())
			g.Expect(vm.UID).To(Equal(started.UID))
		}).WithContext(ctx).WithTimeout(15*time.Second).WithPolling(time.Second).Should(Succeed(), "a VM that has started is not replaced")
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("a pool that takes VMs by the nodes that they ask for", func() {
	It("loses no other ones when it is scaled in", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		pool := newPool(ns)
		pool.Spec.Replicas = new(int32(1))
		pool.Spec.UpdateStrategy = &poolv1.VirtualMachinePoolUpdateStrategy{Unmanaged: &poolv1.VirtualMachinePoolUnmanagedStrategy{}} // VMs keep what they ask for
		pool.Spec.ScaleInStrategy.Proactive.SelectionPolicy.Selectors = &poolv1.VirtualMachinePoolSelectors{
			NodeSelectorRequirementMatcher: &[]corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"fast"}}},
		}
		pool.Spec.VirtualMachineTemplate.Spec = fixture.VM(ns, "crew", fixture.Strategy(virtv1.RunStrategyHalted), fixture.ContainerDisk(suite.TinyImage())).Spec
		pool.Spec.VirtualMachineTemplate.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "slow"}
		suite.Create(ctx, pool)
		has := func(names ...string) {
			GinkgoHelper()
			Eventually(machinesOf).WithArguments(ctx, pool).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Equal(names))
		}
		has("crew-0")

		By("adding VMs that ask for other nodes")
		patchPool(ctx, pool, `{"spec":{"virtualMachineTemplate":{"spec":{"template":{"spec":{"nodeSelector":{"disk":"fast"}}}}}}}`)
		scalePool(ctx, pool, 3)
		has("crew-0", "crew-1", "crew-2")

		By("scaling it in, for which the highest number would come first")
		scalePool(ctx, pool, 2)
		has("crew-1", "crew-2")
		scalePool(ctx, pool, 1)
		Consistently(machinesOf).WithArguments(ctx, pool).WithContext(ctx).WithTimeout(10*time.Second).WithPolling(time.Second).
			Should(Equal([]string{"crew-1", "crew-2"}), "none is left that the policy lets be taken")

		By("taking those of other nodes, too")
		patchPool(ctx, pool, `{"spec":{"scaleInStrategy":{"proactive":{"selectionPolicy":{"selectors":{"nodeSelectorRequirementMatcher":[{"key":"disk","operator":"Exists"}]}}}}}}`)
		has("crew-1")
	}, SpecTimeout(15*time.Minute))
})

// madeAnew waits until another VM has the name of vm.
func madeAnew(ctx context.Context, vm *virtv1.VirtualMachine) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (types.UID, error) {
		found := &virtv1.VirtualMachine{}
		err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), found)
		return found.UID, client.IgnoreNotFound(err)
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(And(Not(BeEmpty()), Not(Equal(vm.UID))), "another VM of the name")
}

// newPool is a pool of two tiny guests, each with a disk of its own, of which the one with the highest number goes first and leaves its disk.
func newPool(namespace string) *poolv1.VirtualMachinePool {
	labels := map[string]string{"app": "crew"}
	return &poolv1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "crew"},
		Spec: poolv1.VirtualMachinePoolSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			ScaleInStrategy: &poolv1.VirtualMachinePoolScaleInStrategy{Proactive: &poolv1.VirtualMachinePoolProactiveScaleInStrategy{
				SelectionPolicy:   &poolv1.VirtualMachinePoolSelectionPolicy{SortPolicy: new(poolv1.VirtualMachinePoolSortPolicyDescendingOrder)},
				StatePreservation: new(poolv1.StatePreservationOffline),
			}},
			VirtualMachineTemplate: &poolv1.VirtualMachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: fixture.VM(namespace, "crew", fixture.ContainerDisk(suite.TinyImage()),
					fixture.Template("data", fixture.DataVolume(namespace, "data", "32Mi"))).Spec,
			},
		},
	}
}

// poolIs waits until the pool is as wanted.
func poolIs(ctx context.Context, pool *poolv1.VirtualMachinePool, wanted func(*poolv1.VirtualMachinePool) bool) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, pool, 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		found := obj.(*poolv1.VirtualMachinePool)
		words := fmt.Sprintf("%d of %d ready", found.Status.ReadyReplicas, found.Status.Replicas)
		for _, c := range found.Status.Conditions {
			words += fmt.Sprintf("; %s: %s: %s", c.Type, c.Reason, c.Message)
		}
		return words, wanted(found), nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// poolStands waits until the pool has so many VMs, whose guests run, and no trouble.
func poolStands(ctx context.Context, pool *poolv1.VirtualMachinePool, guests int32) {
	GinkgoHelper()
	poolIs(ctx, pool, func(pool *poolv1.VirtualMachinePool) bool {
		return pool.Status.Replicas == guests && pool.Status.ReadyReplicas == guests && len(pool.Status.Conditions) == 0
	})
}

// machinesOf are the names of the pool's VMs, with those that are going.
func machinesOf(ctx context.Context, pool *poolv1.VirtualMachinePool) ([]string, error) {
	var list virtv1.VirtualMachineList
	if err := suite.World.Client.List(ctx, &list, client.InNamespace(pool.Namespace), client.MatchingLabels(pool.Spec.Selector.MatchLabels)); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// poolDisk is a claim of a pool's namespace, and the VM whose DataVolume it is of; "" when nobody has that.
type poolDisk struct {
	uid   types.UID
	owner string
}

// disksOf are the claims in the pool's namespace, by name. Each is its DataVolume's.
func disksOf(ctx context.Context, pool *poolv1.VirtualMachinePool) map[string]poolDisk {
	GinkgoHelper()
	var claims corev1.PersistentVolumeClaimList
	Expect(suite.World.Client.List(ctx, &claims, client.InNamespace(pool.Namespace))).To(Succeed())
	disks := map[string]poolDisk{}
	for i := range claims.Items {
		claim, dv := &claims.Items[i], &cdiv1.DataVolume{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(claim), dv)).To(Succeed())
		Expect(metav1.IsControlledBy(claim, dv)).To(BeTrue(), "the owners of claim %s are %v", claim.Name, claim.OwnerReferences)
		disk := poolDisk{uid: claim.UID}
		if owner := metav1.GetControllerOf(dv); owner != nil {
			disk.owner = owner.Name
		}
		disks[claim.Name] = disk
	}
	return disks
}

// comesAgain waits until another instance has the name of vmi.
func comesAgain(ctx context.Context, vmi *virtv1.VirtualMachineInstance) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) (types.UID, error) {
		found := &virtv1.VirtualMachineInstance{}
		err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vmi), found)
		return found.UID, client.IgnoreNotFound(err)
	}).WithContext(ctx).WithTimeout(suite.BoundBoot).WithPolling(time.Second).
		Should(And(Not(BeEmpty()), Not(Equal(vmi.UID))), "the guest starts anew")
}

// scalePool is kubectl scale.
func scalePool(ctx context.Context, pool *poolv1.VirtualMachinePool, replicas int32) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	Expect(suite.World.Client.SubResource("scale").Patch(ctx, pool, patch, client.WithSubResourceBody(&autoscalingv1.Scale{}))).To(Succeed())
}

func patchPool(ctx context.Context, pool *poolv1.VirtualMachinePool, patch string) {
	GinkgoHelper()
	Expect(suite.World.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}
