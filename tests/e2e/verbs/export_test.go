//go:build e2e

package verbs

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("virtctl vmexport", func() {
	It("downloads the disk of a stopped VM through the API server", SpecTimeout(5*time.Minute), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		dir := GinkgoT().TempDir()
		sent, file := filepath.Join(dir, "sent.img"), filepath.Join(dir, "root.img")
		disk := make([]byte, 64<<20) // most of it zeros
		_, _ = rand.Read(disk[:8<<20])
		Expect(os.WriteFile(sent, disk, 0o600)).To(Succeed())
		virtctl(ctx, ns, "image-upload", "dv", "root", "--size=64Mi", "--force-bind", "--image-path="+sent)
		suite.Create(ctx, fixture.VM(ns, "web", fixture.Strategy(virtv1.RunStrategyHalted), fixture.Claim("root", "root")))

		out := virtctl(ctx, ns, "vmexport", "download", "web-disks", "--vm=web", "--format=raw", "--output="+file, "--port-forward")
		Expect(out).To(And(ContainSubstring("web-disks' created"), ContainSubstring("Download finished"), ContainSubstring("web-disks' deleted")))
		got, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(got, disk)).To(BeTrue(), "the disk is as it was sent")
		Expect(refused(ctx, ns, "vmexport", "download", "none", "--output="+file)).To(ContainSubstring("does not exist"))
	})
})
