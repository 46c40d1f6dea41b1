package driver_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestSanity runs the conformance suite of CSI drivers against the driver: with
// volumes of files and of blocks, on the file system of the test and on one that can
// share blocks.
func TestSanity(t *testing.T) {
	needsRoot(t)
	node := serve(t, map[string]string{"plain": t.TempDir(), "reflink": reflinkPool(t)})
	for _, poolName := range []string{"plain", "reflink"} {
		for _, access := range []string{"mount", "block"} {
			config := sanity.NewTestConfig()
			config.Address = node.socket
			config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
			config.TargetPath = filepath.Join(node.root, poolName+access+"-target")
			config.StagingPath = filepath.Join(node.root, poolName+access+"-staging")
			config.TestVolumeSize, config.TestVolumeExpandSize = 64<<20, 128<<20
			config.TestVolumeAccessType = access
			config.TestVolumeParameters = map[string]string{driver.ParameterPool: poolName}
			ginkgo.Describe(poolName+" pool, "+access+" volumes", func() { sanity.GinkgoTest(&config) })
		}
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
}

// node is a driver that serves as on a node.
type node struct {
	*driver.Driver
	root   string // the kubelet's directory
	socket string
	pools  pools
}

type pools map[string]string

func (p pools) Pools() map[string]driver.Place {
	places := map[string]driver.Place{}
	for name, path := range p {
		places[name] = driver.Place{Path: path}
	}
	return places
}

func serve(t *testing.T, known pools) node {
	t.Helper()
	root, err := os.MkdirTemp("", "csi") // a short path: sockets' names are limited
	check(t, err)
	n := node{root: root, socket: filepath.Join(root, "csi.sock"), pools: known}
	n.Driver = n.restarted()
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := n.Listen(ctx, n.socket)
	check(t, err)
	done := make(chan error)
	go func() { done <- n.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
		check(t, os.RemoveAll(root))
	})
	return n
}

// restarted is a driver of the same node that knows nothing of the first.
func (n node) restarted() *driver.Driver {
	return driver.New(driver.Options{
		Name: "kubevirt.io.hostpath-provisioner", Version: "test", NodeName: "node-1",
		TopologyKey: "topology.hostpath.csi/node", KubeletRoot: n.root, HostRoot: "/", Pools: n.pools,
		Devices: loopdev.Devices{Dir: "/dev", Sys: "/sys"}, Log: logr.Discard(),
	})
}

// reflinkPool is a directory on a new XFS, which can share blocks, and is gone with the test.
func reflinkPool(t *testing.T) string {
	t.Helper()
	mkfs := need.Program(t, "mkfs.xfs", "xfsprogs")
	image := filepath.Join(t.TempDir(), "xfs")
	file, err := os.Create(image)
	check(t, err)
	check(t, file.Truncate(1<<30))
	output, err := exec.CommandContext(t.Context(), mkfs, "-q", "-m", "reflink=1", image).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	devices := loopdev.Devices{Dir: "/dev", Sys: "/sys"}
	device, err := devices.Attach(file)
	check(t, err)
	dir := t.TempDir()
	if unix.Mount(device, dir, "xfs", 0, "prjquota") != nil { // a kernel without quotas
		check(t, unix.Mount(device, dir, "xfs", 0, ""))
	}
	t.Cleanup(func() {
		check(t, unix.Unmount(dir, unix.MNT_DETACH))
		check(t, devices.Detach(file))
		check(t, file.Close())
	})
	return dir
}

func needsRoot(t *testing.T) {
	t.Helper()
	need.Root(t, "mount")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
