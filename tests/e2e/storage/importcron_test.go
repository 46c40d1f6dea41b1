//go:build e2e

package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containers/image/v5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a DataImportCron", func() {
	// publish puts a file of the suite under the name that is polled, as of now.
	publish := func(file string) {
		GinkgoHelper()
		content, err := os.ReadFile(filepath.Join(dir, file))
		Expect(err).NotTo(HaveOccurred())
		write(filepath.Join(dir, "tonight"), content)
		Expect(os.Rename(filepath.Join(dir, "tonight"), filepath.Join(dir, "nightly"))).To(Succeed(), "nobody reads half of it")
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
		By("waiting for the first import")
		first := named(ctx, namespace, "")
		Expect(first).To(HavePrefix("tiny-"))

		By("publishing another file")
		publish("disk.raw.gz")
		second := named(ctx, namespace, first)

		By("waiting for the older import to go")
		Eventually(ctx, func(g Gomega) {
			err := suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: first}, &cdiv1.DataVolume{})
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
		suite.DataVolume(ctx, namespace, second, cdiv1.Succeeded)
	}, SpecTimeout(25*time.Minute))

	It("clones the claim of its source, and another claim that gets the name", func(ctx context.Context) {
		namespace := suite.Namespace(ctx)
		// published has a claim of the name with a disk of its own, and returns the digest of that.
		published := func(seed byte) (*cdiv1.DataVolume, string) {
			GinkgoHelper()
			address, _ := scattered(fmt.Sprintf("published-%d", seed), seed)
			suite.Create(ctx, fixture.DataVolume(namespace, "published", "64Mi", fixture.HTTP(address)))
			dv := suite.DataVolume(ctx, namespace, "published", cdiv1.Succeeded)
			Expect(dv.Annotations[names.AnnotationDigest]).NotTo(BeEmpty())
			return dv, dv.Annotations[names.AnnotationDigest]
		}
		template := fixture.DataVolume(namespace, "", "64Mi", fixture.CloneOf(namespace, "published"))
		suite.Create(ctx, &cdiv1.DataImportCron{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
			Spec: cdiv1.DataImportCronSpec{
				Schedule: "* * * * *", ManagedDataSource: "tiny", ImportsToKeep: new(int32(1)), Template: cdiv1.DataVolume{Spec: template.Spec},
			},
		})
		cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
		cronSays(ctx, cron, "there is no claim yet", func(_ *cdiv1.DataImportCron, c cdiv1.DataImportCronCondition) bool {
			return c.Reason == "NoDigest" && strings.Contains(c.Message, "PersistentVolumeClaim published")
		})

		By("publishing a claim, which is asked for again after a minute")
		source, content := published(2)
		first := named(ctx, namespace, "")
		imported := suite.DataVolume(ctx, namespace, first, cdiv1.Succeeded)
		Expect(imported.Spec.Source.PVC).To(HaveValue(HaveField("Name", "published")))
		Expect(imported.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, content))

		By("publishing another claim in its place")
		Expect(suite.World.Client.Delete(ctx, source)).To(Succeed())
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "published"}}
		for _, gone := range []client.Object{source, claim} {
			Expect(suite.World.Gone(ctx, GinkgoWriter, gone, suite.BoundEnd)).To(Succeed())
		}
		_, content = published(3)
		second := named(ctx, namespace, first)
		imported = suite.DataVolume(ctx, namespace, second, cdiv1.Succeeded)
		Expect(imported.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, content))

		By("waiting for the older import to go")
		older := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: first}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, older, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(25*time.Minute))

	It("clones a claim of another namespace once its account may", func(ctx context.Context) {
		namespace, images := suite.Namespace(ctx), suite.Namespace(ctx)
		address, _ := scattered("published-4", 4)
		suite.Create(ctx, fixture.DataVolume(images, "published", "64Mi", fixture.HTTP(address)))
		content := suite.DataVolume(ctx, images, "published", cdiv1.Succeeded).Annotations[names.AnnotationDigest]
		template := fixture.DataVolume(namespace, "", "64Mi", fixture.CloneOf(images, "published"))
		suite.Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "importer"}},
			&cdiv1.DataImportCron{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
				Spec: cdiv1.DataImportCronSpec{
					Schedule: "@daily", ManagedDataSource: "tiny", ServiceAccountName: new("importer"), Template: cdiv1.DataVolume{Spec: template.Spec},
				},
			})
		cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
		cronSays(ctx, cron, "it may not", func(_ *cdiv1.DataImportCron, c cdiv1.DataImportCronCondition) bool {
			return c.Reason == "NotAuthorized" && strings.Contains(c.Message, "system:serviceaccount:"+namespace+":importer has insufficient permissions")
		})

		By("allowing it, which is asked again after a minute")
		suite.Create(ctx,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: "clone"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}},
			}},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: "clone"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clone"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "importer"}},
			})
		imported := suite.DataVolume(ctx, namespace, named(ctx, namespace, ""), cdiv1.Succeeded)
		Expect(imported.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, content))
	}, SpecTimeout(20*time.Minute))

	It("asks a registry that wants a password, and says so while it is another one", func(ctx context.Context) {
		namespace := suite.Namespace(ctx)
		address, authority := tinyBehind(ctx, &types.DockerAuthConfig{Username: "nightly", Password: "secret"})
		login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "login"}, StringData: map[string]string{"accessKeyId": "nightly", "secretKey": "other"}}
		template := fixture.DataVolume(namespace, "", "256Mi", fixture.Registry(address, "authority"))
		template.Spec.Source.Registry.SecretRef = new("login")
		suite.Create(ctx, login,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "authority"}, Data: map[string]string{"registry.pem": string(authority)}},
			&cdiv1.DataImportCron{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
				Spec:       cdiv1.DataImportCronSpec{Schedule: "@daily", ManagedDataSource: "tiny", Template: cdiv1.DataVolume{Spec: template.Spec}},
			})
		cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
		cronSays(ctx, cron, "the password is refused", func(_ *cdiv1.DataImportCron, c cdiv1.DataImportCronCondition) bool {
			return c.Reason == "NoDigest" && strings.Contains(c.Message, "Unauthorized")
		})
		By("setting the right one, with which it is asked again after a minute")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"secretKey":"secret"}}`))
		Expect(suite.World.Client.Patch(ctx, login, patch)).To(Succeed())
		cronSays(ctx, cron, "the image is imported", func(now *cdiv1.DataImportCron, c cdiv1.DataImportCronCondition) bool {
			return c.Reason == "UpToDate" && now.Status.LastImportedPVC != nil
		})
		Eventually(ctx, func(g Gomega) {
			pods := &corev1.PodList{}
			g.Expect(suite.World.Client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"cdi.kubevirt.io/dataImportCron": "nightly"})).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty(), "the pod that asked is still there")
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
})

// named waits until DataSource tiny is ready with another claim than the one before, and returns that claim's name. DataImportCron nightly leads it.
func named(ctx context.Context, namespace, before string) string {
	GinkgoHelper()
	source := &cdiv1.DataSource{}
	Eventually(ctx, func(g Gomega) {
		cron := &cdiv1.DataImportCron{}
		g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "nightly"}, cron)).To(Succeed())
		g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tiny"}, source)).To(Succeed(), "DataImportCron: %+v", cron.Status)
		g.Expect(source.Spec.Source.PVC).NotTo(BeNil(), "DataImportCron: %+v", cron.Status)
		g.Expect(source.Spec.Source.PVC.Name).NotTo(Equal(before), "DataImportCron: %+v", cron.Status)
		g.Expect(source.Status.Conditions).To(ContainElement(HaveField("ConditionState.Reason", "Ready")))
	}).WithTimeout(suite.BoundImport).WithPolling(time.Second).Should(Succeed())
	return source.Spec.Source.PVC.Name
}

// cronSays waits until a DataImportCron is up to date, or not, as done says.
func cronSays(ctx context.Context, cron *cdiv1.DataImportCron, what string, done func(*cdiv1.DataImportCron, cdiv1.DataImportCronCondition) bool) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, cron, suite.BoundImport, func(obj client.Object) (string, bool, error) {
		now := obj.(*cdiv1.DataImportCron)
		for _, c := range now.Status.Conditions {
			if c.Type == cdiv1.DataImportCronUpToDate {
				return what + ": " + c.Reason + " " + c.Message, done(now, c), nil
			}
		}
		return what, false, nil
	})
	Expect(err).NotTo(HaveOccurred())
}
