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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

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
		By("deleting its VM, which it leaves running for people to look at")
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: env.NamespaceDemo, Name: "demo-vm"}}
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(45*time.Minute))
})
