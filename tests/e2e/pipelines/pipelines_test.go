//go:build e2e

// Package pipelines tests the shipped pipelines: golden-image by the demo itself, from a
// vendor's disk to a second VM.
package pipelines

import (
	"context"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

func TestPipelines(t *testing.T) { suite.Run(t, "pipelines") }

var _ = Describe("the demo", func() {
	It("builds a golden image by the pipeline and makes a VM from it", func(ctx context.Context) {
		demo := exec.CommandContext(ctx, "go", "run", "./hack/demo")
		demo.Dir, demo.Stdout, demo.Stderr = suite.World.Root, GinkgoWriter, GinkgoWriter
		Expect(demo.Run()).To(Succeed())
	}, SpecTimeout(45*time.Minute))
})
