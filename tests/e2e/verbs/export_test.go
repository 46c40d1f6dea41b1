//go:build e2e

package verbs

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/vmexport"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("virtctl vmexport", func() {
	It("downloads the disk of a stopped VM through the API server, and virt-exportproxy gives it out", SpecTimeout(15*time.Minute), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		dir := GinkgoT().TempDir()
		sent, file := filepath.Join(dir, "sent.img"), filepath.Join(dir, "root.img")
		disk := make([]byte, 64<<20) // most of it zeros
		_, _ = rand.Read(disk[:8<<20])
		Expect(os.WriteFile(sent, disk, 0o600)).To(Succeed())
		virtctl(ctx, ns, "image-upload", "dv", "root", "--size=64Mi", "--force-bind", "--image-path="+sent)
		suite.Create(ctx, fixture.VM(ns, "web", fixture.Strategy(virtv1.RunStrategyHalted), fixture.Claim("root", "root")))

		out := virtctl(ctx, ns, "vmexport", "download", "web-disks", "--vm=web", "--format=raw", "--output="+file, "--port-forward", "--readiness-timeout=10m")
		Expect(out).To(And(ContainSubstring("web-disks' created"), ContainSubstring("Download finished"), ContainSubstring("web-disks' deleted")))
		got, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(got, disk)).To(BeTrue(), "the disk is as it was sent")

		// By way of virt-exportproxy, which no Ingress publishes here.
		virtctl(ctx, ns, "vmexport", "create", "kept", "--vm=web")
		export := &exportv1.VirtualMachineExport{}
		Eventually(func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "kept"}, export)).To(Succeed())
			g.Expect(export.Status).NotTo(BeNil())
			g.Expect(export.Status.Phase).To(Equal(exportv1.Ready))
		}).WithContext(ctx).WithTimeout(boundVerb).WithPolling(time.Second).Should(Succeed())
		secret := &corev1.Secret{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: *export.Status.TokenSecretRef}, secret)).To(Succeed())
		path := strings.TrimPrefix(vmexport.URL(vmexport.ExternalBase("", ns, "kept"), "root", exportv1.KubeVirtRaw), "https:///")
		throughProxy := func(token string) ([]byte, error) {
			return suite.World.Kube.CoreV1().Services(names.InstallNamespace).ProxyGet("https", vmexport.ProxyName, "443", path, map[string]string{vmexport.Token: token}).DoRaw(ctx)
		}
		Eventually(func() error { // the proxy may hear of the export a moment later
			got, err = throughProxy(string(secret.Data[vmexport.KeyToken]))
			return err
		}).WithContext(ctx).WithTimeout(boundVerb).WithPolling(time.Second).Should(Succeed())
		Expect(bytes.Equal(got, disk)).To(BeTrue(), "the disk comes through virt-exportproxy as it is")
		_, err = throughProxy("another")
		Expect(err).To(Satisfy(apierrors.IsUnauthorized))

		Expect(refused(ctx, ns, "vmexport", "download", "none", "--output="+file)).To(ContainSubstring("does not exist"))
	})
})
