//go:build e2e

package storage

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("boot sources", func() {
	It("come by the HyperConverged object, and what they imported stays when they go", func(ctx context.Context) {
		namespace := suite.Namespace(ctx)
		volume := fixture.DataVolume(namespace, "", "256Mi", fixture.HTTP(root+"/disk.qcow2"))
		askForSources(ctx, hcov1.DataImportCronTemplate{
			TemplateMetadata: hcov1.TemplateMetadata{Namespace: namespace, Name: "tiny-image-cron"},
			Spec:             &cdiv1.DataImportCronSpec{Schedule: "@daily", ManagedDataSource: "tiny", Template: cdiv1.DataVolume{Spec: volume.Spec}},
		})
		source := &cdiv1.DataSource{}
		Eventually(ctx, func(g Gomega) {
			cron := &cdiv1.DataImportCron{}
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tiny-image-cron"}, cron)).To(Succeed())
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tiny"}, source)).To(Succeed(), "DataImportCron: %+v", cron.Status)
			g.Expect(source.Status.Conditions).To(ContainElement(HaveField("ConditionState.Reason", "Ready")), "DataImportCron: %+v", cron.Status)
		}).WithTimeout(suite.BoundImport).WithPolling(time.Second).Should(Succeed())

		By("seeing who may see those where the common ones are")
		binding := &rbacv1.RoleBinding{}
		key := client.ObjectKey{Namespace: namespace, Name: "os-images.kubevirt.io:view"}
		Eventually(ctx, func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, key, binding)).To(Succeed())
			g.Expect(binding.Subjects).To(ContainElement(HaveField("Name", "system:authenticated")))
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())

		By("asking for none any more")
		askForSources(ctx)
		Eventually(ctx, func(g Gomega) {
			err := suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tiny-image-cron"}, &cdiv1.DataImportCron{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(source), source)).To(Succeed())
		Expect(source.Spec.Source.PVC).NotTo(BeNil())
	}, SpecTimeout(20*time.Minute))
})

// askForSources has the HyperConverged object ask for templates, no others, until the spec ends. Where the first one is
// it would have the common ones.
func askForSources(ctx context.Context, templates ...hcov1.DataImportCronTemplate) {
	GinkgoHelper()
	hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
	set := func(ctx context.Context, templates []hcov1.DataImportCronTemplate) {
		sources := map[string]any{"dataImportCronTemplates": templates, "commonBootImageNamespace": nil}
		if len(templates) > 0 {
			sources["commonBootImageNamespace"] = templates[0].Namespace
		}
		data, err := json.Marshal(map[string]any{"spec": map[string]any{"workloadSources": sources}})
		Expect(err).NotTo(HaveOccurred())
		patch := client.RawPatch(types.MergePatchType, data)
		Expect(suite.World.Client.Patch(ctx, hco, patch)).To(Succeed())
	}
	set(ctx, templates)
	if len(templates) > 0 {
		DeferCleanup(func(ctx context.Context) { set(ctx, nil) })
	}
}
