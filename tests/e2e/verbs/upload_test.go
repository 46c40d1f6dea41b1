//go:build e2e

package verbs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("virtctl image-upload", func() {
	It("fills a new DataVolume with the image, through the API server", SpecTimeout(20*time.Minute), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		tiny, err := suite.World.Guest(ctx, "tiny")
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		image, raw := filepath.Join(dir, "tiny.qcow2"), filepath.Join(dir, "tiny.raw")
		for path, format := range map[string]string{image: "qcow2", raw: "raw"} {
			out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-O", format, tiny, path).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
		}
		const size = 256 << 20 // what is asked for; the rest of the disk is zeros
		Expect(os.Truncate(raw, size)).To(Succeed())
		disk, err := os.Open(raw)
		Expect(err).NotTo(HaveOccurred())
		defer disk.Close()
		sum, err := digest.Of(ctx, disk, size, 2)
		Expect(err).NotTo(HaveOccurred())

		out := virtctl(ctx, ns, "image-upload", "dv", "tiny", "--size=256Mi", "--force-bind", "--image-path="+image)
		Expect(out).To(And(ContainSubstring("through the API server"), ContainSubstring("100 %"), ContainSubstring("completed successfully")))
		dv := suite.DataVolume(ctx, ns, "tiny", cdiv1.Succeeded)
		Expect(dv.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, sum))
		Expect(refused(ctx, ns, "image-upload", "dv", "tiny", "--no-create", "--image-path="+image)).To(ContainSubstring("already successfully"))

		By("sending the same disk in a container image that was saved as a file")
		images, err := suite.World.Images()
		Expect(err).NotTo(HaveOccurred())
		virtctl(ctx, ns, "image-upload", "dv", "archived", "--size=256Mi", "--force-bind", "--image-path="+images["guest-tiny"].Archive)
		archived := suite.DataVolume(ctx, ns, "archived", cdiv1.Succeeded)
		Expect(archived.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, sum))
	})

	It("unpacks an archive onto a new claim, without a DataVolume", SpecTimeout(15*time.Minute), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		dir := GinkgoT().TempDir()
		files := filepath.Join(dir, "files.tar.gz")
		Expect(os.WriteFile(filepath.Join(dir, "ramp"), []byte("a slipway is a ramp\n"), 0o600)).To(Succeed())
		out, err := exec.CommandContext(ctx, "tar", "-C", dir, "-czf", files, "ramp").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)

		Expect(virtctl(ctx, ns, "image-upload", "pvc", "files", "--size=64Mi", "--force-bind", "--archive-path="+files)).
			To(And(ContainSubstring("PersistentVolumeClaim "+ns+"/files created"), ContainSubstring("completed successfully")))
		claim := &corev1.PersistentVolumeClaim{}
		Eventually(ctx, func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "files"}, claim)).To(Succeed())
			g.Expect(claim.Annotations).To(And(HaveKeyWithValue("cdi.kubevirt.io/storage.pod.phase", "Succeeded"), HaveKeyWithValue("cdi.kubevirt.io/storage.contentType", "archive")))
		}, boundVerb, time.Second).Should(Succeed())
		Expect(claim.OwnerReferences).To(BeEmpty())
		got := filepath.Join(dir, "got.tar.gz")
		virtctl(ctx, ns, "vmexport", "download", "files", "--pvc=files", "--format=gzip", "--output="+got, "--port-forward", "--readiness-timeout=10m")
		out, err = exec.CommandContext(ctx, "tar", "-xzOf", got, "--wildcards", "*ramp").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(Equal("a slipway is a ramp\n"))
	})
})
