//go:build e2e

package storage

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a golden image of another namespace", func() {
	It("is cloned by a VM whose namespace may, by none other, and leaves nothing behind", func(ctx context.Context) {
		images, team := suite.Namespace(ctx), suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(images, "base", "256Mi", fixture.HTTP(root+"/disk.qcow2")))
		suite.DataVolume(ctx, images, "base", cdiv1.Succeeded)
		suite.Create(ctx, &cdiv1.DataSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: "tiny"},
			Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: images, Name: "base"}}},
		})
		own := fixture.DataVolume(team, "root", "256Mi")
		own.Spec.Source = nil
		own.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Namespace: &images, Name: "tiny"}
		vm := fixture.VM(team, "guest", fixture.Template("root", own))

		By("refusing it without leave")
		err := suite.World.Client.Create(ctx, vm.DeepCopy())
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err.Error()).To(ContainSubstring("User system:serviceaccount:" + team + ":default has insufficient permissions in clone source namespace " + images))

		By("booting from a clone with leave")
		suite.Create(ctx,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: "clone"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}},
			}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: "clone"},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clone"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + team}}},
		)
		suite.May(ctx, team, "default", authorizationv1.ResourceAttributes{
			Namespace: images, Verb: "create", Group: "cdi.kubevirt.io", Resource: "datavolumes", Subresource: "source",
		})
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, team, "guest")
		Expect(suite.Shell(ctx, vmi, "uname -s")).To(Equal("Linux"))

		By("looking at what is left in the images' namespace")
		Eventually(ctx, func(g Gomega) {
			var claims corev1.PersistentVolumeClaimList
			g.Expect(suite.World.Client.List(ctx, &claims, client.InNamespace(images))).To(Succeed())
			g.Expect(claims.Items).To(HaveLen(1), "only the image's own claim")
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
		claim := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: team, Name: "root"}, claim)).To(Succeed())
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
		Eventually(ctx, func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(volume), volume)).To(Succeed())
			g.Expect(volume.Spec.PersistentVolumeReclaimPolicy).To(Equal(corev1.PersistentVolumeReclaimDelete))
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())

		By("removing the VM, its disk and the disk's volume")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, volume, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(30*time.Minute))

	It("is given up when the DataVolume goes while it is on its way", func(ctx context.Context) {
		images, team := suite.Namespace(ctx), suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(images, "base", "64Mi"))
		suite.DataVolume(ctx, images, "base", cdiv1.Succeeded)
		for range 5 { // at whatever point it is
			dv := fixture.DataVolume(team, "copy", "64Mi", fixture.CloneOf(images, "base"))
			suite.Create(ctx, dv)
			suite.DataVolumeUntil(ctx, team, "copy", func(dv *cdiv1.DataVolume) bool {
				return dv.Status.Phase == cdiv1.CSICloneInProgress || dv.Status.Phase == cdiv1.Succeeded
			})
			Expect(suite.World.Client.Delete(ctx, dv)).To(Succeed())
			Expect(suite.World.Gone(ctx, GinkgoWriter, dv, suite.BoundEnd)).To(Succeed())
		}
		Eventually(ctx, func(g Gomega) {
			var claims corev1.PersistentVolumeClaimList
			g.Expect(suite.World.Client.List(ctx, &claims, client.InNamespace(images))).To(Succeed())
			g.Expect(claims.Items).To(HaveLen(1))
			var volumes corev1.PersistentVolumeList
			g.Expect(suite.World.Client.List(ctx, &volumes)).To(Succeed())
			for _, volume := range volumes.Items {
				if ref := volume.Spec.ClaimRef; ref != nil {
					g.Expect(ref.Namespace).NotTo(Equal(team), "volume %s stays", volume.Name)
					g.Expect(ref.Namespace+"/"+ref.Name).NotTo(HavePrefix(images+"/clone-"), "volume %s stays", volume.Name)
				}
			}
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
})
