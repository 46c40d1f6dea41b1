//go:build e2e

package storage

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a DataImportCron", func() {
	// publish puts a file of the suite under the name that is polled, as of now.
	publish := func(file string) {
		GinkgoHelper()
		content, err := os.ReadFile(filepath.Join(dir, file))
		Expect(err).NotTo(HaveOccurred())
		write(filepath.Join(dir, "nightly"), content)
	}

	It("imports the image anew when it changes; the DataSource follows, and the older import goes", func(ctx context.Context) {
		namespace := suite.Namespace(ctx)
		publish("disk.qcow2")
		template := fixture.DataVolume(namespace, "", "256Mi", fixture.HTTP(root+"/nightly"))
		suite.Create(ctx, &cdiv1.DataImportCron{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
			Spec: cdiv1.DataImportCronSpec{
				Schedule: "* * * * *", ManagedDataSource: "tiny", ImportsToKeep: new(int32(1)), Template: cdiv1.DataVolume{Spec: template.Spec},
			},
		})
		// named waits until the DataSource is ready with another claim than the one before.
		named := func(before string) string {
			GinkgoHelper()
			source := &cdiv1.DataSource{}
			Eventually(ctx, func(g Gomega) {
				cron := &cdiv1.DataImportCron{}
				g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "nightly"}, cron)).To(Succeed())
				g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tiny"}, source)).To(Succeed(), "DataImportCron: %+v", cron.Status)
				g.Expect(source.Spec.Source.PVC).NotTo(BeNil(), "DataImportCron: %+v", cron.Status)
				g.Expect(source.Spec.Source.PVC.Name).NotTo(Equal(before), "DataImportCron: %+v", cron.Status)
				g.Expect(source.Status.Conditions).To(ContainElement(HaveField("ConditionState.Reason", "Ready")))
			}).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Succeed())
			return source.Spec.Source.PVC.Name
		}

		By("waiting for the first import")
		first := named("")
		Expect(first).To(HavePrefix("tiny-"))

		By("publishing another file")
		publish("disk.raw.gz")
		second := named(first)

		By("waiting for the older import to go")
		Eventually(ctx, func(g Gomega) {
			err := suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: first}, &cdiv1.DataVolume{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
		suite.DataVolume(ctx, namespace, second, cdiv1.Succeeded)
	}, SpecTimeout(12*time.Minute))
})
