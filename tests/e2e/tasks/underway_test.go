//go:build e2e

package tasks

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"knative.dev/pkg/apis"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// meanwhile does something once, when the newest TaskRun of the task runs. The returned function
// waits until it was done.
func meanwhile(ctx context.Context, task string, do func(ctx context.Context, run *tektonv1.TaskRun)) (done func()) {
	known := runsOf(ctx, task)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer GinkgoRecover()
		var running *tektonv1.TaskRun
		Eventually(func(g Gomega) {
			for _, run := range runsOf(ctx, task) {
				fresh := !slices.ContainsFunc(known, func(k *tektonv1.TaskRun) bool { return k.UID == run.UID })
				if fresh && len(run.Status.Steps) > 0 && run.Status.Steps[0].Running != nil {
					running = run
				}
			}
			g.Expect(running).NotTo(BeNil(), "waiting until a TaskRun of %s runs", task)
		}).WithContext(ctx).WithTimeout(suite.BoundTask).WithPolling(500 * time.Millisecond).Should(Succeed())
		do(ctx, running)
	})
	return wg.Wait
}

func runsOf(ctx context.Context, task string) []*tektonv1.TaskRun {
	GinkgoHelper()
	var list tektonv1.TaskRunList
	Expect(suite.World.Client.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{"tekton.dev/task": task})).To(Succeed())
	runs := make([]*tektonv1.TaskRun, len(list.Items))
	for i := range list.Items {
		runs[i] = &list.Items[i]
	}
	return runs
}

// heldDisk serves a disk, whose first byte comes when release is called.
func heldDisk(ctx context.Context) (url string, release func()) {
	GinkgoHelper()
	open := make(chan struct{})
	release = sync.OnceFunc(func() { close(open) })
	DeferCleanup(release)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-open:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "disk.raw", time.Time{}, bytes.NewReader(make([]byte, 1<<20)))
	}))
	Expect(err).NotTo(HaveOccurred())
	return root + "/disk.raw", release
}

func importOf(name, url string) string {
	return "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata:\n  " + name +
		"\n  annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: \"true\"}\nspec:\n  source: {http: {url: \"" + url + "\"}}\n  storage: {resources: {requests: {storage: 16Mi}}}\n"
}

var _ = Describe("a task whose pod is killed", func() {
	It("goes on with what it made, and makes it once", func(ctx context.Context) {
		url, release := heldDisk(ctx)
		base := "killed-" + rand.String(5) + "-"
		done := meanwhile(ctx, "modify-data-object", func(ctx context.Context, run *tektonv1.TaskRun) {
			By("killing its pod once the DataVolume is there")
			Eventually(func(g Gomega) { g.Expect(madeBy(ctx, run)).To(HaveLen(1)) }).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
			pod := &corev1.Pod{ObjectMeta: meta(run.Status.PodName)}
			Expect(suite.World.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
			release()
		})
		run := retried(ctx, "modify-data-object", map[string]string{"manifest": importOf("generateName: "+base, url), "waitForSuccess": "true"})
		done()
		Expect(run.IsSuccessful()).To(BeTrue(), suite.TaskLog(ctx, run))
		made := madeBy(ctx, run)
		Expect(made).To(HaveLen(1))
		later(&made[0])
		Expect(made[0].Status.Phase).To(Equal(cdiv1.Succeeded))
		Expect(run.Status.Results).To(ContainElement(And(
			HaveField("Name", "name"), HaveField("Value.StringVal", made[0].Name))))
	}, SpecTimeout(25*time.Minute))
})

// retried runs a task that Tekton may try again, and returns it once it ended.
func retried(ctx context.Context, task string, params map[string]string) *tektonv1.TaskRun {
	GinkgoHelper()
	run := &tektonv1.TaskRun{Spec: tektonv1.TaskRunSpec{
		TaskRef: &tektonv1.TaskRef{Kind: tektonv1.NamespacedTaskKind, Name: task}, ServiceAccountName: task + "-task", Retries: 2,
	}}
	run.Namespace, run.GenerateName = ns, task+"-"
	for name, value := range params {
		run.Spec.Params = append(run.Spec.Params, tektonv1.Param{Name: name, Value: *tektonv1.NewStructuredValues(value)})
	}
	suite.Create(ctx, run)
	err := suite.World.Await(ctx, GinkgoWriter, run, suite.BoundTask, func(obj client.Object) (string, bool, error) {
		run = obj.(*tektonv1.TaskRun)
		return run.GetStatusCondition().GetCondition(apis.ConditionSucceeded).GetReason(), run.IsDone(), nil
	})
	Expect(err).NotTo(HaveOccurred())
	return run
}

// madeBy are the DataVolumes that a TaskRun made.
func madeBy(ctx context.Context, run *tektonv1.TaskRun) []cdiv1.DataVolume {
	GinkgoHelper()
	var made cdiv1.DataVolumeList
	Expect(suite.World.Client.List(ctx, &made, client.InNamespace(ns), client.MatchingLabels{"slipway-vm.github.io/taskrun-uid": string(run.UID)})).To(Succeed())
	return made.Items
}

var _ = Describe("what a TaskRun owns", func() {
	It("stays when the pod goes, and goes with the TaskRun", func(ctx context.Context) {
		name := "owned-" + rand.String(5)
		dv := fixture.DataVolume(ns, name, "16Mi")
		later(dv)
		manifest := "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {name: " + name + "}\nspec: {source: {blank: {}}, storage: {resources: {requests: {storage: 16Mi}}}}\n"
		run := suite.TaskRun(ctx, "modify-data-object", map[string]any{"manifest": manifest, "setOwnerReference": "true"})
		Expect(run.IsSuccessful()).To(BeTrue(), suite.TaskLog(ctx, run))
		pod := &corev1.Pod{ObjectMeta: meta(run.Status.PodName)}
		Expect(suite.World.Client.Delete(ctx, pod)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, pod, suite.BoundEnd)).To(Succeed())
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(dv), dv)).To(Succeed())
		Expect(dv.DeletionTimestamp).To(BeNil())
		Expect(suite.World.Client.Delete(ctx, run)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, dv, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("wait-for-vmi-status", func() {
	It("asks conditions by JSONPath and CEL, and ends when the instance is deleted for good", func(ctx context.Context) {
		vm := fixture.VM(ns, "waited-"+rand.String(5), fixture.ContainerDisk(suite.TinyImage()))
		later(vm)
		suite.Create(ctx, vm)
		suite.Succeeds(ctx, "wait-for-vmi-status", map[string]any{
			"vmiName": vm.Name, "successCondition": `jsonpath:{.status.conditions[?(@.type=="Ready")].status}==True`, "failureCondition": "status.phase in (Failed, Unknown)",
		})
		suite.Succeeds(ctx, "wait-for-vmi-status", map[string]any{
			"vmiName": vm.Name, "successCondition": `cel:status.phase == "Running" && status.conditions.exists(c, c.type == "Ready" && c.status == "True") && self.metadata.name == "` + vm.Name + `"`,
		})
		code, log := suite.Fails(ctx, "wait-for-vmi-status", map[string]any{"vmiName": vm.Name, "successCondition": "status.phase == Succeeded", "failureCondition": `cel:status.phase == "Running"`})
		Expect(code).To(BeEquivalentTo(2))
		Expect(log).To(ContainSubstring("failure condition"))

		done := meanwhile(ctx, "wait-for-vmi-status", func(ctx context.Context, run *tektonv1.TaskRun) {
			// Who has not seen the instance yet waits for one to come.
			Eventually(func() string { return suite.TaskLog(ctx, run) }).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
				Should(ContainSubstring("VirtualMachineInstance is in phase"))
			Expect(suite.World.Client.Delete(ctx, &virtv1.VirtualMachine{ObjectMeta: meta(vm.Name)})).To(Succeed())
		})
		code, log = suite.Fails(ctx, "wait-for-vmi-status", map[string]any{"vmiName": vm.Name, "successCondition": "status.phase == Never"})
		done()
		Expect(code).To(BeEquivalentTo(2))
		Expect(log).To(ContainSubstring("was deleted"))
	}, SpecTimeout(30*time.Minute))

	DescribeTable("refuses what it cannot read", func(ctx context.Context, params map[string]any, want string) {
		code, log := suite.Fails(ctx, "wait-for-vmi-status", params)
		Expect(code).To(BeEquivalentTo(255))
		Expect(log).To(ContainSubstring(want))
	},
		Entry("no name", SpecTimeout(15*time.Minute), map[string]any{"vmiName": ""}, "vmi-name should not be empty"),
		Entry("a success condition", SpecTimeout(15*time.Minute), map[string]any{"vmiName": "x", "successCondition": "test.....test"}, "success-condition: invalid condition: cannot parse jsonpath"),
		Entry("a failure condition", SpecTimeout(15*time.Minute), map[string]any{"vmiName": "x", "failureCondition": "invalid#$%^$&"}, "failure-condition: could not parse condition"),
	)
})

var _ = Describe("a command in a VM", func() {
	It("is not waited for longer than it may take, and its VM is stopped all the same", func(ctx context.Context) {
		keys := suite.Succeeds(ctx, "generate-ssh-keys", map[string]any{
			"additionalSSHKeygenOptions":  "-t ed25519",
			"privateKeyConnectionOptions": []string{"user:root", "disable-strict-host-key-checking:true"},
		})
		for _, half := range []string{"privateKeySecretName", "publicKeySecretName"} {
			later(&corev1.Secret{ObjectMeta: meta(keys[half])})
		}
		vm := fixture.VM(ns, "slow-"+rand.String(5), fixture.Strategy(virtv1.RunStrategyHalted), fixture.ContainerDisk(suite.TinyImage()),
			fixture.CloudInit("#cloud-config\nssh_authorized_keys:\n  - "+keys["publicKey"]+"\n"))
		later(vm)
		suite.Create(ctx, vm)
		login := func(params map[string]any) map[string]any {
			params["vmName"] = vm.Name
			if params["secretName"] == nil {
				params["secretName"] = keys["privateKeySecretName"]
			}
			return params
		}
		suite.Succeeds(ctx, "execute-in-vm", login(map[string]any{"command": []string{"true"}}))

		By("saying which part was missing")
		var private, closed, other corev1.Secret
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: keys["privateKeySecretName"]}, &private)).To(Succeed())
		for name, secret := range map[string]*corev1.Secret{"closed": &closed, "other": &other} {
			secret.ObjectMeta = meta(name + "-" + rand.String(5))
			secret.Type, secret.Data = private.Type, map[string][]byte{}
			maps.Copy(secret.Data, private.Data)
		}
		closed.Data["additional-ssh-options"] = []byte("-p 9")
		delete(other.Data, "disable-strict-host-key-checking")
		other.Data["host-public-key"] = []byte(keys["publicKey"])
		for _, secret := range []*corev1.Secret{&closed, &other} {
			later(secret)
			suite.Create(ctx, secret)
		}
		const waitedFor = "timed out waiting for the condition: waited for the SSH server at"
		code, log := suite.FailsInTime(ctx, "execute-in-vm", login(map[string]any{"secretName": closed.Name, "command": []string{"true"}}), waitedFor, nil, "10s", "1m", "5m")
		Expect(code).To(BeEquivalentTo(253))
		Expect(log).To(ContainSubstring(waitedFor))
		code, log = suite.Fails(ctx, "execute-in-vm", login(map[string]any{"secretName": other.Name, "command": []string{"true"}}))
		Expect(code).To(BeEquivalentTo(253))
		Expect(log).To(ContainSubstring("REMOTE HOST IDENTIFICATION HAS CHANGED"))

		By("stopping the VM after a command that takes too long")
		code, log = suite.FailsInTime(ctx, "cleanup-vm", login(map[string]any{"script": "sleep 1200"}), "command timed out",
			func() { suite.Succeeds(ctx, "execute-in-vm", login(map[string]any{"command": []string{"true"}})) }, "45s", "3m", "8m")
		Expect(code).To(BeEquivalentTo(253))
		Expect(log).To(ContainSubstring("command timed out"))
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
		Expect(*vm.Spec.RunStrategy).To(Equal(virtv1.RunStrategyHalted))
	}, SpecTimeout(40*time.Minute))
})

var _ = Describe("generate-ssh-keys", func() {
	It("adds to a Secret of keys, and overwrites no private key", func(ctx context.Context) {
		public, private := &corev1.Secret{ObjectMeta: meta("public-" + rand.String(5)), StringData: map[string]string{"id_rsa.pub": "ssh-rsa AAAA other"}}, &corev1.Secret{ObjectMeta: meta("private-" + rand.String(5))}
		later(public)
		later(private)
		suite.Create(ctx, public)
		params := map[string]any{"publicKeySecretName": public.Name, "privateKeySecretName": private.Name, "additionalSSHKeygenOptions": "-t ed25519 -C me@here"}
		Expect(suite.Succeeds(ctx, "generate-ssh-keys", params)).To(HaveKeyWithValue("publicKey", HaveSuffix(" me@here")))
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(public), public)).To(Succeed())
		Expect(public.Data).To(And(HaveLen(2), HaveKeyWithValue("id_rsa.pub", []byte("ssh-rsa AAAA other"))))
		code, log := suite.Fails(ctx, "generate-ssh-keys", params)
		Expect(code).To(BeEquivalentTo(253))
		Expect(log).To(ContainSubstring("already exists"))
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("data objects", func() {
	It("are made by the task of before, published as a DataSource, replaced and deleted", func(ctx context.Context) {
		name := "data-" + rand.String(5)
		later(&cdiv1.DataVolume{ObjectMeta: meta(name)})
		golden := &cdiv1.DataSource{ObjectMeta: meta(name)}
		later(golden)
		blank := "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata:\n  name: " + name +
			"\n  annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: \"true\"}\nspec:\n  source: {blank: {}}\n  storage: {resources: {requests: {storage: 16Mi}}}\n"
		Expect(suite.Succeeds(ctx, "create-datavolume-from-manifest", map[string]any{"manifest": blank, "waitForSuccess": "true"})).To(HaveKeyWithValue("name", name))

		source := "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataSource\nmetadata: {name: " + name + "}\nspec: {source: {pvc: {name: " + name + ", namespace: " + ns + "}}}\n"
		suite.Succeeds(ctx, "modify-data-object", map[string]any{"manifest": source, "waitForSuccess": "true"})
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(golden), golden)).To(Succeed())
		uid := golden.UID
		suite.Succeeds(ctx, "modify-data-object", map[string]any{"manifest": source, "waitForSuccess": "true", "allowReplace": "true"})
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(golden), golden)).To(Succeed())
		Expect(golden.UID).To(Equal(uid), "a DataSource is changed in place")

		suite.Succeeds(ctx, "modify-data-object", map[string]any{"deleteObject": "true", "deleteObjectKind": "DataSource", "deleteObjectName": name})
		suite.Succeeds(ctx, "modify-data-object", map[string]any{"deleteObject": "true", "deleteObjectKind": "DataVolume", "deleteObjectName": name})
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta(name)}
		suite.Succeeds(ctx, "modify-data-object", map[string]any{"deleteObject": "true", "deleteObjectKind": "PersistentVolumeClaim", "deleteObjectName": name})
		Expect(suite.World.Gone(ctx, GinkgoWriter, claim, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(25*time.Minute))
})
