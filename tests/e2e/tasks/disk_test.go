//go:build e2e

package tasks

import (
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// served serves handler to the cluster until the test ends and returns its root.
func served(ctx context.Context, handler http.Handler) string {
	GinkgoHelper()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, handler)
	Expect(err).NotTo(HaveOccurred())
	return root
}

// imported fills a claim with a file of this machine.
func imported(ctx context.Context, file, size string, options ...fixture.DataVolumeOption) *cdiv1.DataVolume {
	GinkgoHelper()
	root := served(ctx, http.FileServer(http.Dir(filepath.Dir(file))))
	options = append([]fixture.DataVolumeOption{fixture.HTTP(root + "/" + filepath.Base(file))}, options...)
	dv := fixture.DataVolume(ns, "disk-"+rand.String(5), size, options...)
	later(dv)
	suite.Create(ctx, dv)
	return suite.DataVolume(ctx, ns, dv.Name, cdiv1.Succeeded)
}

// guest is the path of a test guest's disk.
func guest(ctx context.Context, name string) string {
	GinkgoHelper()
	disk, err := suite.World.Guest(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return disk
}

// contentOf is the digest of what was imported into the claim.
func contentOf(ctx context.Context, claim string) string {
	GinkgoHelper()
	var pvc corev1.PersistentVolumeClaim
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: claim}, &pvc)).To(Succeed())
	Expect(pvc.Annotations).To(HaveKey(names.AnnotationDigest))
	return pvc.Annotations[names.AnnotationDigest]
}

var _ = Describe("disk-virt-sysprep", func() {
	It("works on a block device, with its older parameters, and prints no password", func(ctx context.Context) {
		dv := imported(ctx, guest(ctx, "debian"), "4Gi", fixture.Block())
		run := suite.TaskRun(ctx, "disk-virt-sysprep", map[string]any{
			"pvc": dv.Name, "sysprepCommands": "write /etc/proof:here\nroot-password password:never-seen\n",
			"additionalOptions": "--operations 'customize,machine-id,ssh-hostkeys'",
		})
		printed := suite.TaskLog(ctx, run)
		Expect(run.Status.Conditions[0].IsTrue()).To(BeTrue(), printed)
		Expect(printed).NotTo(ContainSubstring("never-seen"))
		results := map[string]string{}
		for _, result := range run.Status.Results {
			results[result.Name] = result.Value.StringVal
		}
		Expect(results).To(HaveKeyWithValue("exitCode", "0"))
		Expect(results["stdout"]).To(ContainSubstring("Writing: /etc/proof"))

		By("finding it there with the twin, whose failure is passed on")
		code, printed := suite.Fails(ctx, "disk-virt-customize", map[string]any{"pvc": dv.Name, "virtCommands": "run-command grep here /etc/proof && echo seen && false\n"})
		Expect(code).To(BeEquivalentTo(1))
		Expect(printed).To(ContainSubstring("seen"))
	}, SpecTimeout(40*time.Minute))

	It("takes a cached result onto a block device", suite.Thorough, func(ctx context.Context) {
		disk := guest(ctx, "small")
		params := map[string]any{"virtCommands": "write /etc/proof:" + rand.String(8) + "\n"}
		var results [2]map[string]string
		var claims [2]string
		for n := range results {
			claims[n] = imported(ctx, disk, "256Mi", fixture.Block()).Name
			params["pvc"] = claims[n]
			results[n] = suite.Succeeds(ctx, "disk-virt-customize", params)
		}
		Expect(results[0]).To(HaveKeyWithValue("cached", "false"))
		Expect(results[1]).To(And(HaveKeyWithValue("cached", "true"), HaveKeyWithValue("digest", results[0]["digest"])))

		By("reading the device, which another step does first")
		params["virtCommands"] = "write /etc/more:here\n"
		for n, claim := range claims {
			params["pvc"] = claim
			results[n] = suite.Succeeds(ctx, "disk-virt-customize", params)
		}
		Expect(results[1]).To(And(HaveKeyWithValue("cached", "true"), HaveKeyWithValue("digest", results[0]["digest"])), "the devices differed after the first step")
		Expect(contentOf(ctx, claims[1])).To(Equal(results[1]["digest"]))
	}, SpecTimeout(40*time.Minute))

	It("refuses at once the disk of a VM that runs", func(ctx context.Context) {
		dv := imported(ctx, guest(ctx, "tiny"), "256Mi")
		vm := fixture.VM(ns, "busy-"+rand.String(5), fixture.Claim("root", dv.Name))
		later(vm)
		suite.Create(ctx, vm)
		suite.VMStatus(ctx, ns, vm.Name, virtv1.VirtualMachineStatusRunning)

		code, printed := suite.Fails(ctx, "disk-virt-sysprep", map[string]any{"pvc": dv.Name, "virtCommands": "hostname x\n"})
		Expect(code).To(BeEquivalentTo(255))
		Expect(printed).To(ContainSubstring("is in use by VirtualMachine " + vm.Name + ": stop it first"))
	}, SpecTimeout(25*time.Minute))

	DescribeTable("refuses wrong parameters", func(ctx context.Context, params map[string]any, want string) {
		name := "none-" + rand.String(5)
		claim := fixture.DataVolume(ns, name, "16Mi")
		later(claim)
		suite.Create(ctx, claim)
		suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)
		params["pvc"] = name
		code, printed := suite.Fails(ctx, "disk-virt-sysprep", params)
		Expect(code).To(BeEquivalentTo(255))
		Expect(printed).To(ContainSubstring(want))
	},
		Entry("no commands", SpecTimeout(15*time.Minute), map[string]any{}, "virt-commands option or VIRT_COMMANDS env variable is required"),
		Entry("an open quote", SpecTimeout(15*time.Minute), map[string]any{"virtCommands": "update", "additionalVirtOptions": "'"}, "additionalVirtOptions: "),
	)
})

// loginSecret makes the Secret with a registry's credentials.
func loginSecret(ctx context.Context) string {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: meta("login-" + rand.String(5)), StringData: map[string]string{"accessKeyId": "me", "secretKey": "secret"}}
	later(secret)
	suite.Create(ctx, secret)
	return secret.Name
}

var _ = Describe("disk-uploader", func() {
	It("uploads a claim, whose content comes back the same", func(ctx context.Context) {
		dv := imported(ctx, guest(ctx, "tiny"), "256Mi")
		root := served(ctx, registry.New(registry.Logger(log.New(GinkgoWriter, "registry: ", 0))))
		image := strings.TrimPrefix(root, "http://") + "/golden:v1"
		params := map[string]any{
			"EXPORT_SOURCE_KIND": "pvc", "EXPORT_SOURCE_NAME": dv.Name, "VOLUME_NAME": dv.Name,
			"IMAGE_DESTINATION": image, "SECRET_NAME": loginSecret(ctx), "PLAIN_HTTP": "true",
		}
		results := suite.Succeeds(ctx, "disk-uploader", params)
		Expect(results).To(And(HaveKeyWithValue("IMAGE_URL", image), HaveKeyWithValue("IMAGE_DIGEST", results["digest"])))
		Expect(results["digest"]).To(HavePrefix("sha256:"))

		By("uploading it again, which gives the same image")
		Expect(suite.Succeeds(ctx, "disk-uploader", params)).To(Equal(results))

		By("importing what was uploaded")
		back := imported(ctx, suite.PulledDisk(ctx, root, results["digest"]), "256Mi")
		Expect(contentOf(ctx, back.Name)).To(Equal(contentOf(ctx, dv.Name)))
	}, SpecTimeout(40*time.Minute))

	It("waits until the VM is stopped, and knows its disks", func(ctx context.Context) {
		dv := imported(ctx, guest(ctx, "tiny"), "256Mi")
		vm := fixture.VM(ns, "upload-"+rand.String(5), fixture.Claim("root", dv.Name))
		later(vm)
		suite.Create(ctx, vm)
		suite.VMStatus(ctx, ns, vm.Name, virtv1.VirtualMachineStatusRunning)
		root := served(ctx, registry.New(registry.Logger(log.New(GinkgoWriter, "registry: ", 0))))
		params := map[string]any{
			"EXPORT_SOURCE_KIND": "vm", "EXPORT_SOURCE_NAME": vm.Name, "VOLUME_NAME": dv.Name,
			"IMAGE_DESTINATION": strings.TrimPrefix(root, "http://") + "/golden", "SECRET_NAME": loginSecret(ctx), "PLAIN_HTTP": "true",
		}

		By("giving up while it runs")
		params["PUSH_TIMEOUT"] = "1"
		code, printed := suite.Fails(ctx, "disk-uploader", params)
		Expect(code).To(BeEquivalentTo(1))
		Expect(printed).To(ContainSubstring("is still in use by VirtualMachine " + vm.Name + ": stop it first"))

		By("stopping it as the task begins to wait")
		params["PUSH_TIMEOUT"] = "15"
		Expect(suite.World.Client.Patch(ctx, vm, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runStrategy":"Halted"}}`)))).To(Succeed())
		results := suite.Succeeds(ctx, "disk-uploader", params)
		Expect(results["IMAGE_URL"]).To(HaveSuffix("/golden:latest"))
		disk := suite.PulledDisk(ctx, root, results["digest"])
		out, err := exec.CommandContext(ctx, "qemu-img", "check", disk).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))

		By("naming a disk that is not the VM's")
		other := imported(ctx, guest(ctx, "tiny"), "256Mi")
		params["VOLUME_NAME"] = other.Name
		code, printed = suite.Fails(ctx, "disk-uploader", params)
		Expect(code).To(BeEquivalentTo(1))
		Expect(printed).To(ContainSubstring("has no disk on claim " + other.Name + "; its claims are: " + dv.Name))
	}, SpecTimeout(45*time.Minute))

	It("ends with the field's codes and says what is wrong", func(ctx context.Context) {
		name := "none-" + rand.String(5)
		claim := fixture.DataVolume(ns, name, "16Mi")
		later(claim)
		suite.Create(ctx, claim)
		suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		Expect(closed.Close()).To(Succeed())
		params := map[string]any{
			"EXPORT_SOURCE_KIND": "pvc", "EXPORT_SOURCE_NAME": name, "VOLUME_NAME": name,
			"IMAGE_DESTINATION": closed.Addr().String() + "/golden", "SECRET_NAME": "no-such-secret", "PUSH_TIMEOUT": "1",
		}
		code, printed := suite.Fails(ctx, "disk-uploader", params)
		Expect(code).To(BeEquivalentTo(2))
		Expect(printed).To(ContainSubstring("Secret no-such-secret does not exist or has no key"))

		params["SECRET_NAME"] = loginSecret(ctx)
		code, printed = suite.Fails(ctx, "disk-uploader", params)
		Expect(code).To(BeEquivalentTo(3))
		Expect(printed).To(And(ContainSubstring("trying again"), ContainSubstring("PUSH_TIMEOUT: 1m0s are over")))

		params["EXPORT_SOURCE_KIND"] = "vmsnapshot"
		code, printed = suite.Fails(ctx, "disk-uploader", params)
		Expect(code).To(BeEquivalentTo(2))
		Expect(printed).To(ContainSubstring("upload that as kind pvc"))
	}, SpecTimeout(25*time.Minute))
})

// windowsDisc makes an iso file with the layout of Windows', with or without the boot files that need no key.
func windowsDisc(ctx context.Context, complete bool) string {
	GinkgoHelper()
	root := GinkgoT().TempDir()
	files := map[string]int{"boot/etfsboot.com": 4096, "efi/microsoft/boot/efisys.bin": 1474560, "efi/microsoft/boot/cdboot.efi": 999000, "sources/install.wim": 3 << 20}
	if complete {
		files["efi/microsoft/boot/efisys_noprompt.bin"] = 1474560
		files["efi/microsoft/boot/cdboot_noprompt.efi"] = 990000
	}
	for name, size := range files {
		path := filepath.Join(root, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		Expect(os.WriteFile(path, []byte(strings.Repeat(name, size/len(name)+1)[:size]), 0o644)).To(Succeed())
	}
	disc := filepath.Join(GinkgoT().TempDir(), "windows.iso")
	out, err := exec.CommandContext(ctx, "genisoimage", "-quiet", "-udf", "-iso-level", "4", "-J", "-joliet-long", "-V", "WINDOWS", "-o", disc,
		"-b", "boot/etfsboot.com", "-no-emul-boot", "-boot-load-size", "8",
		"-eltorito-alt-boot", "-e", "efi/microsoft/boot/efisys.bin", "-no-emul-boot", root).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return disc
}

var _ = Describe("modify-windows-iso-file", func() {
	DescribeTable("makes a disc boot without a key press, once", func(ctx context.Context, options ...fixture.DataVolumeOption) {
		dv := imported(ctx, windowsDisc(ctx, true), "64Mi", options...)
		for _, want := range []string{"the iso file boots without a prompt now", "already; nothing was changed"} {
			run := suite.TaskRun(ctx, "modify-windows-iso-file", map[string]any{"pvcName": dv.Name})
			printed := suite.TaskLog(ctx, run)
			Expect(run.Status.Conditions[0].IsTrue()).To(BeTrue(), printed)
			Expect(printed).To(ContainSubstring(want))
		}
	},
		Entry("in a file system", SpecTimeout(25*time.Minute)),
		Entry("on a block device", SpecTimeout(25*time.Minute), fixture.Block()),
	)

	It("leaves a disc alone that lacks the files", func(ctx context.Context) {
		dv := imported(ctx, windowsDisc(ctx, false), "64Mi")
		code, printed := suite.Fails(ctx, "modify-windows-iso-file", map[string]any{"pvcName": dv.Name})
		Expect(code).To(BeEquivalentTo(1))
		Expect(printed).To(ContainSubstring("not found in the iso file! Task expects that ISO file contains bootloader without prompt."))
	}, SpecTimeout(20*time.Minute))
})
