//go:build e2e

// Package restart tests that a VM and its disk survive a stop of the whole local cluster.
package restart

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestRestart(t *testing.T) { suite.Run(t, "restart") }

var _ = Describe("a VM on a cluster that is stopped and started", func() {
	It("runs again, with what its guest wrote", func(ctx context.Context) {
		if suite.World.Existing {
			Skip("an existing cluster is not stopped")
		}
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "data", "64Mi"))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		suite.Create(ctx, fixture.VM(ns, "survivor", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "data")))
		before := suite.RunningVMI(ctx, ns, "survivor")
		suite.Shell(ctx, before, "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo kept > /mnt/file; umount /mnt; sync")

		cluster(ctx, "down")
		cluster(ctx, "up")

		err := suite.World.Await(ctx, GinkgoWriter, before, 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			vmi := obj.(*virtv1.VirtualMachineInstance)
			return string(vmi.UID[:8]) + " " + string(vmi.Status.Phase), vmi.UID != before.UID && vmi.Status.Phase == virtv1.Running, nil
		})
		Expect(err).NotTo(HaveOccurred())
		after := suite.RunningVMI(ctx, ns, "survivor")
		Expect(suite.Shell(ctx, after, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("kept"))
	}, SpecTimeout(45*time.Minute))
})

// cluster stops or starts the local cluster.
func cluster(ctx context.Context, verb string) {
	GinkgoHelper()
	By(verb + " of the cluster")
	cmd := exec.CommandContext(ctx, "go", "run", "-C", filepath.Join(suite.World.Root, "hack/cluster"), ".", verb)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Run()).To(Succeed())
}
