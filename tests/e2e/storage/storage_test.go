//go:build e2e

// Package storage tests how disks are filled, cloned and used by VMs.
package storage

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestStorage(t *testing.T) { suite.Run(t, "storage", prepare) }

// server serves the disks of this suite; root is its URL, dir its folder.
var root, dir, qcow2Sum string

// prepare makes the disks and serves them.
func prepare(ctx context.Context) {
	GinkgoHelper()
	tiny, err := suite.World.Guest(ctx, "tiny")
	Expect(err).NotTo(HaveOccurred())
	dir = GinkgoT().TempDir()
	makeDisks(ctx, tiny)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(dir)))
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	root, err = suite.World.Serve(serving, mux)
	Expect(err).NotTo(HaveOccurred())
}

// makeDisks makes the tiny guest's disk in every format, and files that are no disks.
func makeDisks(ctx context.Context, tiny string) {
	GinkgoHelper()
	qemuImg := func(args ...string) {
		out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "qemu-img %v: %s", args, out)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	qemuImg("convert", "-O", "qcow2", tiny, at("disk.qcow2"))
	qemuImg("convert", "-O", "raw", tiny, at("disk.raw"))
	raw, err := os.ReadFile(at("disk.raw"))
	Expect(err).NotTo(HaveOccurred())
	var packed bytes.Buffer
	gz := gzip.NewWriter(&packed)
	_, err = gz.Write(raw)
	Expect(err).NotTo(HaveOccurred())
	Expect(gz.Close()).To(Succeed())
	write(at("disk.raw.gz"), packed.Bytes())
	encoder, err := zstd.NewWriter(nil)
	Expect(err).NotTo(HaveOccurred())
	write(at("disk.raw.zst"), encoder.EncodeAll(raw, nil))
	Expect(exec.CommandContext(ctx, "xz", "-k", "-T2", "-1", at("disk.raw")).Run()).To(Succeed())
	qcow2, err := os.ReadFile(at("disk.qcow2"))
	Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(qcow2)
	qcow2Sum = hex.EncodeToString(sum[:])
	write(at("truncated.qcow2"), qcow2[:len(qcow2)/2])
	write(at("page.html"), []byte("<!DOCTYPE html>\n<html><body>Not the image you look for</body></html>\n"))
	qemuImg("create", "-f", "qcow2", at("huge.qcow2"), "1T")
	qemuImg("create", "-f", "qcow2", "-F", "qcow2", "-b", "disk.qcow2", at("backed.qcow2"))
}

// scattered serves a disk of 4 MiB without a system, other than that of every other seed, and returns its address and what is on it.
func scattered(name string, seed byte) (address string, content []byte) {
	GinkgoHelper()
	content = make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(content) // never fails
	write(filepath.Join(dir, name), content)
	return root + "/" + name, content
}

func write(path string, data []byte) {
	GinkgoHelper()
	Expect(os.WriteFile(path, data, 0o644)).To(Succeed())
}

var _ = Describe("an import over HTTP", func() {
	DescribeTable("of a disk in any format succeeds, with a digest that does not depend on the format",
		func(ctx context.Context, file string, options ...fixture.DataVolumeOption) {
			ns := suite.Namespace(ctx)
			suite.Create(ctx, fixture.DataVolume(ns, "disk", "256Mi", append([]fixture.DataVolumeOption{fixture.HTTP(root + "/" + file)}, options...)...))
			dv := suite.DataVolume(ctx, ns, "disk", cdiv1.Succeeded)
			Expect(string(dv.Status.Progress)).To(Equal("100.0%"))
			Expect(dv.Annotations[names.AnnotationDigest]).NotTo(BeEmpty())
			digests[file] = dv.Annotations[names.AnnotationDigest]
			Expect(digests).To(HaveEach(digests[file]), "every format holds the same disk")
		},
		Entry("qcow2", SpecTimeout(20*time.Minute), "disk.qcow2"),
		Entry("raw", SpecTimeout(20*time.Minute), "disk.raw"),
		Entry("raw.gz", SpecTimeout(20*time.Minute), "disk.raw.gz"),
		Entry("raw.xz", SpecTimeout(20*time.Minute), "disk.raw.xz"),
		Entry("raw.zst", SpecTimeout(20*time.Minute), "disk.raw.zst"),
	)

	It("takes a right checksum, and fills a block device", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "block", "256Mi", fixture.HTTP(root+"/disk.qcow2"), fixture.Checksum("sha256:"+qcow2Sum), fixture.Block()))
		suite.DataVolume(ctx, ns, "block", cdiv1.Succeeded)
		suite.Create(ctx, fixture.VM(ns, "on-block", fixture.Claim("root", "block")))
		vmi := suite.RunningVMI(ctx, ns, "on-block")
		Expect(suite.Shell(ctx, vmi, "uname -s")).To(Equal("Linux"))
	}, SpecTimeout(25*time.Minute))

	DescribeTable("of what is no good disk says why and never succeeds",
		func(ctx context.Context, path, want string, options ...fixture.DataVolumeOption) {
			ns := suite.Namespace(ctx)
			suite.Create(ctx, fixture.DataVolume(ns, "bad", "256Mi", append([]fixture.DataVolumeOption{fixture.HTTP(root + path)}, options...)...))
			dv := suite.DataVolumeUntil(ctx, ns, "bad", func(dv *cdiv1.DataVolume) bool {
				for _, c := range dv.Status.Conditions {
					if c.Type == cdiv1.DataVolumeRunning && c.Message != "" && bytes.Contains([]byte(c.Message), []byte(want)) {
						return true
					}
				}
				return false
			})
			Expect(dv.Status.Phase).NotTo(Equal(cdiv1.Succeeded))
		},
		Entry("404", SpecTimeout(20*time.Minute), "/nothing.qcow2", "404"),
		Entry("a redirect loop", SpecTimeout(20*time.Minute), "/loop", "redirect"),
		Entry("a truncated qcow2", SpecTimeout(20*time.Minute), "/truncated.qcow2", "truncated"),
		Entry("a qcow2 with a backing file", SpecTimeout(20*time.Minute), "/backed.qcow2", "backing file"),
		Entry("a web page", SpecTimeout(20*time.Minute), "/page.html", "text"),
		Entry("a disk larger than the claim", SpecTimeout(20*time.Minute), "/huge.qcow2", "the volume takes at most"),
		Entry("a wrong checksum", SpecTimeout(20*time.Minute), "/disk.qcow2", "ChecksumMismatch",
			fixture.Checksum("sha256:"+"0000000000000000000000000000000000000000000000000000000000000000")),
	)
})

// digests of the imported disks, by file.
var digests = map[string]string{}

var _ = Describe("a blank disk", func() {
	It("keeps what a guest writes, over a restart of the VM and in a clone", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "data", "64Mi"))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		vm := fixture.VM(ns, "writer", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "data"))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "writer")
		suite.Shell(ctx, vmi, "set -e; mke2fs /dev/vdb || mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo kept > /mnt/file; umount /mnt; sync")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())

		suite.Create(ctx, fixture.DataVolume(ns, "copy", "64Mi", fixture.CloneOf(ns, "data")))
		suite.DataVolume(ctx, ns, "copy", cdiv1.Succeeded)
		suite.Create(ctx, fixture.VM(ns, "reader", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "data"), fixture.Claim("copy", "copy")))
		reader := suite.RunningVMI(ctx, ns, "reader")
		Expect(suite.Shell(ctx, reader, "mkdir -p /a /b; mount /dev/vdb /a; mount /dev/vdc /b; cat /a/file /b/file; umount /a /b")).To(Equal("kept\nkept"))
	}, SpecTimeout(30*time.Minute))
})

var _ = Describe("a VM with a DataVolume of its own", func() {
	It("imports it, boots from it, and takes it along when it goes", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		dv := fixture.DataVolume(ns, "own", "256Mi", fixture.HTTP(root+"/disk.qcow2"))
		vm := fixture.VM(ns, "own", fixture.Template("root", dv))
		suite.Create(ctx, vm)
		suite.RunningVMI(ctx, ns, "own")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, claim, suite.BoundEnd)).To(Succeed())
		var claims corev1.PersistentVolumeClaimList
		Expect(suite.World.Client.List(ctx, &claims, client.InNamespace(ns))).To(Succeed())
		Expect(claims.Items).To(BeEmpty())
	}, SpecTimeout(25*time.Minute))
})
