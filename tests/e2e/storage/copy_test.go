//go:build e2e

package storage

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a clone onto another StorageClass", func() {
	It("is copied by a pod, and a guest boots from it", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		class := another(ctx, "other-")
		suite.Create(ctx, fixture.DataVolume(ns, "base", "256Mi", fixture.HTTP(root+"/disk.qcow2")))
		base := suite.DataVolume(ctx, ns, "base", cdiv1.Succeeded)

		dv := fixture.DataVolume(ns, "copy", "256Mi", fixture.CloneOf(ns, "base"))
		dv.Spec.Storage.StorageClassName = &class.Name
		suite.Create(ctx, dv)
		copied := suite.DataVolume(ctx, ns, "copy", cdiv1.Succeeded)
		Expect(copied.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, base.Annotations[names.AnnotationDigest]))
		claim := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(dv), claim)).To(Succeed())
		Expect(claim.Annotations).To(HaveKeyWithValue("cdi.kubevirt.io/cloneType", "copy"))
		Expect(claim.Spec.DataSource).To(BeNil())

		suite.Create(ctx, fixture.VM(ns, "guest", fixture.Claim("root", "copy")))
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "guest"), "uname -s")).To(Equal("Linux"))
	}, SpecTimeout(20*time.Minute))
})
