//go:build e2e

package admission

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("logs of what fills disks", Serial, Label("alone"), func() {
	It("tell as much as HyperConverged says, without a restart", func(ctx context.Context) {
		pods := podsOf(ctx)
		DeferCleanup(cdiLevel, "null")
		cdiLevel(ctx, "7")
		for _, component := range []string{"cdi-uploadproxy", "virt-controller"} {
			Eventually(logOf).WithContext(ctx).WithArguments(component).WithTimeout(time.Minute).WithPolling(500*time.Millisecond).
				Should(MatchRegexp(`Changing how much is logged.*of="CDI".*to="7"`), component)
		}

		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "told-of", "16Mi", func(dv *cdiv1.DataVolume) {
			dv.Annotations["cdi.kubevirt.io/storage.pod.retainAfterCompletion"] = "true"
		}))
		suite.DataVolume(ctx, ns, "told-of", cdiv1.Succeeded)
		pod := &corev1.Pod{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "importer-told-of"}, pod)).To(Succeed())
		Expect(pod.Spec.Containers[0].Args).To(ContainElement("--verbosity=7"))
		log, err := suite.World.Log(ctx, ns, pod.Name, "importer")
		Expect(err).NotTo(HaveOccurred())
		Expect(log).To(And(ContainSubstring("Importing"), ContainSubstring("Import done")))
		Expect(podsOf(ctx)).To(Equal(pods), "components were started again")
	}, SpecTimeout(5*time.Minute))
})

// cdiLevel has HyperConverged say how much is logged of CDI's work, null for nothing.
func cdiLevel(ctx context.Context, level string) {
	GinkgoHelper()
	hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
	change := `{"spec":{"deployment":{"logVerbosityConfig":{"cdi":` + level + `}}}}`
	Expect(suite.World.Client.Patch(ctx, hco, client.RawPatch(types.MergePatchType, []byte(change)))).To(Succeed())
}

// logOf is the log of the component's pod, of its last lines.
func logOf(ctx context.Context, component string) (string, error) {
	var list corev1.PodList
	if err := suite.World.Client.List(ctx, &list, client.InNamespace(names.InstallNamespace), client.MatchingLabels{virtv1.AppLabel: component}); err != nil {
		return "", err
	}
	var all string
	for i := range list.Items {
		log, err := suite.World.Kube.CoreV1().Pods(names.InstallNamespace).GetLogs(list.Items[i].Name, &corev1.PodLogOptions{TailLines: new(int64(1000))}).DoRaw(ctx)
		if err != nil {
			return "", err
		}
		all += string(log)
	}
	return all, nil
}
