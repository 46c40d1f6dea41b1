//go:build e2e

// Package tasks tests each provisioning task as a TaskRun.
package tasks

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestTasks(t *testing.T) {
	suite.Run(t, "tasks", func(ctx context.Context) { ns = suite.TasksNamespace(ctx) })
}

var ns string

// later deletes an object after the test.
func later(object client.Object) {
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			suite.World.Dump(ctx, GinkgoWriter, ns)
		}
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, object))).To(Succeed())
	}, NodeTimeout(suite.BoundEnd))
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

var _ = Describe("modify-data-object", func() {
	It("makes a DataVolume and waits for it, refuses to replace it, replaces it, deletes it", func(ctx context.Context) {
		name := "blank-" + rand.String(5)
		later(&cdiv1.DataVolume{ObjectMeta: meta(name)})
		manifest := "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata:\n  name: " + name +
			"\n  annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: \"true\"}\nspec:\n  source: {blank: {}}\n  storage: {resources: {requests: {storage: 16Mi}}}\n"
		results := suite.Succeeds(ctx, "modify-data-object", map[string]any{"manifest": manifest, "waitForSuccess": "true"})
		Expect(results).To(And(HaveKeyWithValue("name", name), HaveKeyWithValue("namespace", ns)))

		code, log := suite.Fails(ctx, "modify-data-object", map[string]any{"manifest": manifest})
		Expect(code).To(BeEquivalentTo(2))
		Expect(log).To(ContainSubstring("already exists"))

		suite.Succeeds(ctx, "modify-data-object", map[string]any{"manifest": manifest, "allowReplace": "true", "waitForSuccess": "true"})
		suite.Succeeds(ctx, "modify-data-object", map[string]any{"deleteObject": "true", "deleteObjectKind": "DataVolume", "deleteObjectName": name})
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &cdiv1.DataVolume{})).NotTo(Succeed())
	}, SpecTimeout(25*time.Minute))

	DescribeTable("refuses wrong parameters", func(ctx context.Context, params map[string]any, want string) {
		code, log := suite.Fails(ctx, "modify-data-object", params)
		Expect(code).To(BeEquivalentTo(255))
		Expect(log).To(ContainSubstring(want))
	},
		Entry("no manifest", SpecTimeout(15*time.Minute), map[string]any{}, "data-object-manifest param has to be specified"),
		Entry("another kind", SpecTimeout(15*time.Minute), map[string]any{"manifest": "apiVersion: v1\nkind: Pod\n"}, "could not identify data object, wrong group or kind"),
	)
})

var _ = Describe("a VM made, used and cleaned up by tasks", func() {
	It("runs commands with their exit codes, and is gone in the end", func(ctx context.Context) {
		name := "task-vm-" + rand.String(5)
		keys := suite.Succeeds(ctx, "generate-ssh-keys", map[string]any{
			"setOwnerReference":           "true",
			"additionalSSHKeygenOptions":  "-t ed25519",
			"privateKeyConnectionOptions": []string{"user:root", "disable-strict-host-key-checking:true"},
		})
		var secret corev1.Secret
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: keys["privateKeySecretName"]}, &secret)).To(Succeed())
		Expect(secret.Type).To(Equal(corev1.SecretTypeSSHAuth))

		vm := fixture.VM(ns, name, fixture.Strategy(virtv1.RunStrategyHalted), fixture.ContainerDisk(suite.TinyImage()),
			fixture.CloudInit("#cloud-config\nssh_authorized_keys:\n  - "+keys["publicKey"]+"\n"))
		later(vm)
		suite.Create(ctx, vm)

		By("executing in it, which starts it")
		login := func(more map[string]any) map[string]any {
			more["vmName"], more["secretName"] = name, keys["privateKeySecretName"]
			return more
		}
		results := suite.Succeeds(ctx, "execute-in-vm", login(map[string]any{"command": []string{"echo"}, "args": []string{"one word", "$HOME", "it's"}}))
		Expect(results).To(And(HaveKeyWithValue("exitCode", "0"), HaveKeyWithValue("stdout", "one word $HOME it's")))
		code, log := suite.Fails(ctx, "execute-in-vm", login(map[string]any{"script": "echo before; exit 3"}))
		Expect(code).To(BeEquivalentTo(3))
		Expect(log).To(ContainSubstring("before"))

		By("waiting for its status")
		suite.Succeeds(ctx, "wait-for-vmi-status", map[string]any{"vmiName": name, "successCondition": "status.phase == Running"})
		code, _ = suite.Fails(ctx, "wait-for-vmi-status", map[string]any{"vmiName": name, "successCondition": "status.phase == Succeeded", "failureCondition": "status.phase == Running"})
		Expect(code).To(BeEquivalentTo(2))
		const lastSeen = "was last seen in phase Running"
		code, log = suite.FailsInTime(ctx, "wait-for-vmi-status", map[string]any{"vmiName": name, "successCondition": "status.phase == Succeeded"}, lastSeen, nil, "5s", "30s", "3m")
		Expect(code).To(BeEquivalentTo(3))
		Expect(log).To(ContainSubstring(lastSeen))

		By("cleaning up, also when the last command fails")
		code, _ = suite.Fails(ctx, "cleanup-vm", login(map[string]any{"script": "exit 7", "delete": "true"}))
		Expect(code).To(BeEquivalentTo(7))
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), &virtv1.VirtualMachine{})).NotTo(Succeed())
		suite.Succeeds(ctx, "cleanup-vm", map[string]any{"vmName": name, "delete": "true"})
	}, SpecTimeout(45*time.Minute))
})

var _ = Describe("create-vm-from-template", func() {
	It("names a parameter that is missing or unknown, and makes the VM when all are right", func(ctx context.Context) {
		code, log := suite.Fails(ctx, "create-vm-from-template", map[string]any{"templateName": "vm-from-image", "templateParams": []string{"NAME:x"}})
		Expect(code).To(BeEquivalentTo(1))
		Expect(log).To(ContainSubstring("required params are missing values: IMAGE"))
		_, log = suite.Fails(ctx, "create-vm-from-template", map[string]any{"templateName": "vm-from-image", "templateParams": []string{"IMAGE:x", "IMGAE:y"}})
		Expect(log).To(ContainSubstring("no parameter IMGAE"))

		name := "from-template-" + rand.String(5)
		vm := &virtv1.VirtualMachine{ObjectMeta: meta(name)}
		later(vm)
		results := suite.Succeeds(ctx, "create-vm-from-template", map[string]any{
			"templateName":   "golden-image-check",
			"templateParams": []string{"NAME:" + name, "SOURCE_PVC:none", "DISK_SIZE:1Gi", "SSH_PUBLIC_KEY:ssh-ed25519 AAAA test"},
		})
		Expect(results).To(And(HaveKeyWithValue("name", name), HaveKeyWithValue("namespace", ns)))
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
		Expect(*vm.Spec.RunStrategy).To(Equal(virtv1.RunStrategyHalted))
	}, SpecTimeout(25*time.Minute))
})

var _ = Describe("disk-virt-customize", func() {
	It("customizes a disk, and passes on the failure of a command", func(ctx context.Context) {
		disk, err := suite.World.Guest(ctx, "debian")
		Expect(err).NotTo(HaveOccurred())
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(stop)
		root, err := suite.World.Serve(serving, http.FileServer(http.Dir(filepath.Dir(disk))))
		Expect(err).NotTo(HaveOccurred())
		name := "customized-" + rand.String(5)
		dv := fixture.DataVolume(ns, name, "4Gi", fixture.HTTP(root+"/"+filepath.Base(disk)))
		later(dv)
		suite.Create(ctx, dv)
		suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)

		suite.Succeeds(ctx, "disk-virt-customize", map[string]any{"pvc": name, "virtCommands": "write /etc/proof:here\n"})
		code, log := suite.Fails(ctx, "disk-virt-customize", map[string]any{"pvc": name, "virtCommands": "run-command grep here /etc/proof && echo seen && false\n"})
		Expect(code).NotTo(BeZero())
		Expect(log).To(ContainSubstring("seen"))
	}, SpecTimeout(40*time.Minute))
})
