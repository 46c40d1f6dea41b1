//go:build e2e

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a replica set of VMIs", func() {
	It("keeps its number, is scaled, replaces a guest that was killed, and pauses", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		set := replicaSet(ns)
		suite.Create(ctx, set)
		setStands(ctx, set, 2)
		expectNoWarnings(ctx, ns)

		By("scaling it to one")
		scale(ctx, set, 1)
		setStands(ctx, set, 1)
		Eventually(instancesOf).WithArguments(ctx, set).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
			Should(HaveLen(1), "the other one has gone")

		By("killing QEMU")
		first := suite.RunningVMI(ctx, ns, onlyInstance(ctx, set))
		killQEMU(ctx, first)
		Expect(suite.World.Gone(ctx, GinkgoWriter, first, suite.BoundEnd)).To(Succeed())
		setStands(ctx, set, 1)
		second := suite.RunningVMI(ctx, ns, onlyInstance(ctx, set))
		Expect(second.UID).NotTo(Equal(first.UID))

		By("pausing it")
		patchSet(ctx, set, `{"spec":{"paused":true}}`)
		setIs(ctx, set, func(set *virtv1.VirtualMachineInstanceReplicaSet) bool {
			return slices.ContainsFunc(set.Status.Conditions, func(c virtv1.VirtualMachineInstanceReplicaSetCondition) bool {
				return c.Type == virtv1.VirtualMachineInstanceReplicaSetReplicaPaused
			})
		})
		scale(ctx, set, 2)
		Consistently(instancesOf).WithArguments(ctx, set).WithContext(ctx).WithTimeout(10*time.Second).WithPolling(time.Second).
			Should(HaveLen(1), "nothing is made while it is paused")
		patchSet(ctx, set, `{"spec":{"paused":false}}`)
		setStands(ctx, set, 2)

		By("deleting it")
		Expect(suite.World.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, set, suite.BoundEnd)).To(Succeed())
		Expect(instancesOf(ctx, set)).To(BeEmpty(), "a deletion in the foreground waits for the instances")
	}, SpecTimeout(40*time.Minute))
})

// replicaSet is a set of two tiny guests.
func replicaSet(namespace string) *virtv1.VirtualMachineInstanceReplicaSet {
	labels := map[string]string{"app": "crew"}
	set := &virtv1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "crew"}}
	set.Spec.Replicas = new(int32(2))
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template = fixture.VM(namespace, "crew", fixture.ContainerDisk(suite.TinyImage())).Spec.Template
	set.Spec.Template.ObjectMeta.Labels = labels
	return set
}

// setIs waits until the set is as wanted.
func setIs(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet, wanted func(*virtv1.VirtualMachineInstanceReplicaSet) bool) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, set, 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		found := obj.(*virtv1.VirtualMachineInstanceReplicaSet)
		words := fmt.Sprintf("%d of %d ready", found.Status.ReadyReplicas, found.Status.Replicas)
		for _, c := range found.Status.Conditions {
			words += fmt.Sprintf("; %s: %s: %s", c.Type, c.Reason, c.Message)
		}
		return words, wanted(found), nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// setStands waits until the set has so many guests, all of which run, and no trouble.
func setStands(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet, guests int32) {
	GinkgoHelper()
	setIs(ctx, set, func(set *virtv1.VirtualMachineInstanceReplicaSet) bool {
		return set.Status.Replicas == guests && set.Status.ReadyReplicas == guests && len(set.Status.Conditions) == 0
	})
}

// instancesOf are the names of the set's instances, with those that are going.
func instancesOf(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet) ([]string, error) {
	var list virtv1.VirtualMachineInstanceList
	if err := suite.World.Client.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// onlyInstance is the name of the set's one instance.
func onlyInstance(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet) string {
	GinkgoHelper()
	names, err := instancesOf(ctx, set)
	Expect(err).NotTo(HaveOccurred())
	Expect(names).To(HaveLen(1))
	return names[0]
}

// scale is kubectl scale.
func scale(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet, replicas int32) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	Expect(suite.World.Client.SubResource("scale").Patch(ctx, set, patch, client.WithSubResourceBody(&autoscalingv1.Scale{}))).To(Succeed())
}

func patchSet(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet, patch string) {
	GinkgoHelper()
	Expect(suite.World.Client.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}
