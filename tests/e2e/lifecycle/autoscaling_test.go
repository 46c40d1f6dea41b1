//go:build e2e

package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// Thousandths of a processor: what the launcher pods ask for, which is also what the autoscaler
// wants of them on average, and below what a guest is idle.
const (
	requestedCPU = 100
	idleCPU      = 80
)

var _ = Describe("an autoscaled replica set of VMIs", func() {
	It("has one guest while that is idle, and two when it is busy", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		set := replicaSet(ns)
		set.Spec.Replicas = nil // it is the autoscaler's
		set.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(requestedCPU, resource.DecimalSI),
		}
		suite.Create(ctx, set)
		startMetricsServer(ctx)
		setStands(ctx, set, 1)
		vmi := suite.RunningVMI(ctx, ns, onlyInstance(ctx, set))

		By("waiting until the boot has passed out of what is measured")
		Eventually(launchersUse).WithArguments(ctx, set).WithContext(ctx).WithTimeout(2*suite.BoundBoot).WithPolling(3*time.Second).
			Should(And(HaveLen(1), HaveEach(BeNumerically("<", idleCPU))), "one launcher pod, which has next to nothing to do")

		By("having an autoscaler look at it")
		scaler := autoscaler(set)
		suite.Create(ctx, scaler)
		scalerIs(ctx, scaler, func(s *autoscalingv2.HorizontalPodAutoscalerStatus) bool {
			return len(s.CurrentMetrics) == 1 && s.CurrentReplicas == 1 && s.DesiredReplicas == 1
		})

		By("keeping its guest busy")
		suite.Shell(ctx, vmi, "(while :; do :; done) < /dev/null > /dev/null 2>&1 &")
		scalerIs(ctx, scaler, func(s *autoscalingv2.HorizontalPodAutoscalerStatus) bool { return s.DesiredReplicas == 2 })
		setStands(ctx, set, 2)
	}, SpecTimeout(45*time.Minute))
})

// startMetricsServer has a metrics server run until the spec ends.
func startMetricsServer(ctx context.Context) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		Expect(suite.World.RemoveMetricsServer(ctx, GinkgoWriter)).To(Succeed())
	}, NodeTimeout(2*suite.BoundEnd))
	Expect(suite.World.MetricsServer(ctx, GinkgoWriter)).To(Succeed())
}

// launchersUse is what the set's launcher pods use, in thousandths of a processor.
func launchersUse(ctx context.Context, set *virtv1.VirtualMachineInstanceReplicaSet) (map[string]int64, error) {
	if err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
		return nil, err
	}
	used, err := suite.World.MilliCPU(ctx, set.Namespace, set.Status.LabelSelector)
	fmt.Fprintf(GinkgoWriter, "the launcher pods use %v thousandths of a processor\n", used)
	return used, err
}

// autoscaler wants the set's launcher pods to use what they ask for.
func autoscaler(set *virtv1.VirtualMachineInstanceReplicaSet) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: virtv1.SchemeGroupVersion.String(), Kind: "VirtualMachineInstanceReplicaSet", Name: set.Name,
			},
			MinReplicas: new(int32(1)), MaxReplicas: 2,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(100))},
				},
			}},
		},
	}
}

// scalerIs waits until the autoscaler's status is as wanted.
func scalerIs(ctx context.Context, scaler *autoscalingv2.HorizontalPodAutoscaler, wanted func(*autoscalingv2.HorizontalPodAutoscalerStatus) bool) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, scaler, 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		status := &obj.(*autoscalingv2.HorizontalPodAutoscaler).Status
		var words strings.Builder
		fmt.Fprintf(&words, "has %d, wants %d", status.CurrentReplicas, status.DesiredReplicas)
		for _, metric := range status.CurrentMetrics {
			if metric.Resource != nil && metric.Resource.Current.AverageUtilization != nil {
				fmt.Fprintf(&words, ", %s at %d %%", metric.Resource.Name, *metric.Resource.Current.AverageUtilization)
			}
		}
		for _, c := range status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Status != corev1.ConditionTrue || c.Type == autoscalingv2.AbleToScale && c.Status != corev1.ConditionTrue {
				fmt.Fprintf(&words, "; %s: %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		return words.String(), wanted(status), nil
	})
	Expect(err).NotTo(HaveOccurred())
}
