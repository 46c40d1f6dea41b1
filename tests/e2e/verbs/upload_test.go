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
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("virtctl image-upload", func() {
	It("fills a new DataVolume with the image, through the API server", SpecTimeout(10*time.Minute), func(ctx context.Context) {
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
	})
})
