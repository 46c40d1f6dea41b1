//go:build e2e

package admission

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("components", Serial, Label("alone"), func() {
	It("have as many pods as KubeVirt and CDI ask, of the priority of CDI's", func(ctx context.Context) {
		kubevirt := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
		cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}}
		say := func(ctx context.Context, object client.Object, change string) error {
			return suite.World.Client.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(change)))
		}
		DeferCleanup(func(ctx context.Context) {
			Expect(say(ctx, kubevirt, `{"spec":{"infra":null}}`)).To(Succeed())
			Expect(say(ctx, cdi, `{"spec":{"priorityClass":null,"infra":{"uploadProxyReplicas":null}}}`)).To(Succeed())
			Eventually(podsAndPriority).WithContext(ctx).WithArguments("cdi-uploadproxy").WithTimeout(3 * time.Minute).WithPolling(time.Second).
				Should(Equal([]any{int32(1), "kubevirt-cluster-critical"}))
			podsOf(ctx)
		})
		Expect(say(ctx, kubevirt, `{"spec":{"infra":{"replicas":0}}}`)).To(MatchError(ContainSubstring("infra replica count can't be 0")))
		Expect(say(ctx, cdi, `{"spec":{"infra":{"uploadProxyReplicas":0}}}`)).To(MatchError(ContainSubstring("spec.infra.uploadProxyReplicas")))

		Expect(say(ctx, kubevirt, `{"spec":{"infra":{"replicas":2}}}`)).To(Succeed())
		Expect(say(ctx, cdi, `{"spec":{"priorityClass":"e2e-uploads","infra":{"uploadProxyReplicas":2}}}`)).To(Succeed())
		for _, component := range []string{"virt-api", "virt-controller", "cdi-uploadproxy"} {
			Eventually(podsAndPriority).WithContext(ctx).WithArguments(component).WithTimeout(3*time.Minute).WithPolling(time.Second).
				Should(Equal([]any{int32(2), "kubevirt-cluster-critical"}), component)
		}
		Eventually(waited).WithContext(ctx).WithTimeout(time.Minute).WithPolling(time.Second).Should(ContainSubstring("PriorityClass e2e-uploads"))

		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "e2e-uploads"}, Value: 1000}
		suite.Create(ctx, class)
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, class))).To(Succeed())
		})
		Eventually(podsAndPriority).WithContext(ctx).WithArguments("cdi-uploadproxy").WithTimeout(3 * time.Minute).WithPolling(time.Second).
			Should(Equal([]any{int32(2), "e2e-uploads"}))
	}, SpecTimeout(10*time.Minute))
})

// podsAndPriority are how many pods of a component's last version are available, and its PriorityClass.
func podsAndPriority(ctx context.Context, component string) ([]any, error) {
	d := &appsv1.Deployment{}
	if err := suite.World.Client.Get(ctx, client.ObjectKey{Namespace: names.InstallNamespace, Name: component}, d); err != nil {
		return nil, err
	}
	if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != d.Status.Replicas {
		return nil, nil
	}
	return []any{d.Status.AvailableReplicas, d.Spec.Template.Spec.PriorityClassName}, nil
}

// waited is what HyperConverged waits for.
func waited(ctx context.Context) (string, error) {
	hco := &hcov1.HyperConverged{}
	err := suite.World.Client.Get(ctx, client.ObjectKey{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}, hco)
	for _, condition := range hco.Status.Conditions {
		if condition.Type == "Progressing" {
			return condition.Message, err
		}
	}
	return "", err
}
