//go:build e2e

package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("components that differ", Serial, Label("alone"), func() {
	It("are patched, placed and held to a rate of requests as KubeVirt says, and as they were afterwards", func(ctx context.Context) {
		pods := podsOf(ctx)
		DeferCleanup(func(ctx context.Context) {
			Expect(sayInKubeVirt(ctx, `{"customizeComponents":null,"infra":null,"configuration":{"apiConfiguration":null,"webhookConfiguration":null,"controllerConfiguration":null,"handlerConfiguration":null}}`)).To(Succeed())
			customized(ctx, "virt-api", false)
			podsOf(ctx)
		})

		By("asking for what cannot be")
		Expect(sayInKubeVirt(ctx, patching("Deployment", "virt-operator", `{}`))).To(MatchError(ContainSubstring("spec.customizeComponents.patches[0].resourceName")))
		Expect(sayInKubeVirt(ctx, patching("Deployment", "virt-api", `{"spec":{"minReadySeconds":-1}}`))).
			To(MatchError(And(ContainSubstring("spec.customizeComponents"), ContainSubstring("spec.minReadySeconds"))))
		Expect(sayInKubeVirt(ctx, `{"customizeComponents":{"flags":{"api":{"depth":"3"}}}}`)).To(MatchError(And(ContainSubstring("flags.api[depth]"), ContainSubstring("verbosity"))))
		Expect(sayInKubeVirt(ctx, `{"configuration":{"apiConfiguration":{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5,"burst":0}}}}}}`)).
			To(MatchError(ContainSubstring("tokenBucketRateLimiter.burst")))
		Expect(podsOf(ctx)).To(Equal(pods), "what was refused changed components")

		By("holding requests to a rate, without a restart")
		const bucket = `{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":100,"burst":200}}}}`
		Expect(sayInKubeVirt(ctx, `{"configuration":{"apiConfiguration":`+bucket+`,"webhookConfiguration":`+bucket+`,"controllerConfiguration":`+bucket+`,"handlerConfiguration":`+bucket+`}}`)).To(Succeed())
		limits := map[string]string{
			"apiConfiguration": "virt-api", "webhookConfiguration": "virt-api", "controllerConfiguration": "virt-controller", "handlerConfiguration": "virt-handler",
		}
		for field, component := range limits {
			Eventually(logOf).WithContext(ctx).WithArguments(component).WithTimeout(time.Minute).WithPolling(500*time.Millisecond).
				Should(MatchRegexp(`Changing how many requests.*of="`+field+`".*to="100 a second, 200 at once"`), field)
		}
		Expect(podsOf(ctx)).To(Equal(pods), "components were started again")

		By("patching and placing them")
		Expect(sayInKubeVirt(ctx, patching("Deployment", "virt-api",
			`{"spec":{"template":{"metadata":{"annotations":{"e2e":"patched"}},"spec":{"containers":[{"name":"virt-api","resources":{"requests":{"memory":"41Mi"}}}]}}}}`))).To(Succeed())
		Expect(sayInKubeVirt(ctx, `{"infra":{"nodePlacement":{"tolerations":[{"key":"e2e.example.com/infra","operator":"Exists"}]}}}`)).To(Succeed())
		customized(ctx, "virt-api", true)
		Eventually(logOf).WithContext(ctx).WithArguments("virt-api").WithTimeout(time.Minute).WithPolling(500*time.Millisecond).
			Should(ContainSubstring(`to="100 a second, 200 at once"`), "the new pod")

		By("taking all of it away")
		Expect(sayInKubeVirt(ctx, `{"customizeComponents":null,"infra":null}`)).To(Succeed())
		customized(ctx, "virt-api", false)
		Expect(sayInKubeVirt(ctx, `{"configuration":{"apiConfiguration":null,"webhookConfiguration":null,"controllerConfiguration":null,"handlerConfiguration":null}}`)).To(Succeed())
		for field, component := range limits {
			rate := "no limit"
			if component == "virt-controller" {
				rate = "600 a second, 1200 at once"
			}
			Eventually(logOf).WithContext(ctx).WithArguments(component).WithTimeout(time.Minute).WithPolling(500*time.Millisecond).
				Should(MatchRegexp(`of="`+field+`".*to="`+rate+`"`), field)
		}
	}, SpecTimeout(15*time.Minute))
})

// patching is a spec of KubeVirt with one strategic patch.
func patching(kind, name, patch string) string {
	return fmt.Sprintf(`{"customizeComponents":{"patches":[{"resourceType":%q,"resourceName":%q,"type":"strategic","patch":%q}]}}`, kind, name, patch)
}

// sayInKubeVirt merges spec, as JSON, into that of the KubeVirt object.
func sayInKubeVirt(ctx context.Context, spec string) error {
	kubevirt := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
	return suite.World.Client.Patch(ctx, kubevirt, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))
}

// customized waits until all pods of the component run, and are as the spec above patches and places them, or none is.
func customized(ctx context.Context, component string, want bool) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		var list corev1.PodList
		if err := suite.World.Client.List(ctx, &list, client.InNamespace(names.InstallNamespace), client.MatchingLabels{virtv1.AppLabel: component}); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("%s has no pod", component)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			has := []bool{
				pod.Annotations["e2e"] == "patched",
				pod.Spec.Containers[0].Resources.Requests.Memory().String() == "41Mi",
				slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "e2e.example.com/infra" }),
			}
			if slices.Contains(has, !want) || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is %s and has annotation, request and toleration: %v", pod.Name, pod.Status.Phase, has)
			}
		}
		return nil
	}).WithContext(ctx).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(Succeed())
}
