//go:build e2e

// Package pipelines tests the shipped pipelines: golden-image by the demo itself, from a
// vendor's disk to a second VM.
package pipelines

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
)

// publishing labels the specs that `make test` runs beside the others, as a stage of their own.
const publishing = "publishing"

// tasksNamespace is where the spec's runs go: the specs that run beside the others have a namespace
// of their own, for removeImage empties the step cache of the spec's.
func tasksNamespace(ctx context.Context) string {
	GinkgoHelper()
	if slices.Contains(CurrentSpecReport().Labels(), publishing) {
		return suite.WithTasks(ctx, env.NamespacePublishing)
	}
	return suite.WithTasks(ctx, env.NamespacePipelines)
}

func TestPipelines(t *testing.T) { suite.Run(t, "pipelines") }

var _ = Describe("the demo", func() {
	It("builds a golden image by the pipeline and makes a VM from it", func(ctx context.Context) {
		demo := exec.CommandContext(ctx, "go", "run", "./hack/demo")
		demo.Dir, demo.Stdout, demo.Stderr = suite.World.Root, GinkgoWriter, GinkgoWriter
		Expect(demo.Run()).To(Succeed())
	}, SpecTimeout(45*time.Minute))
})
