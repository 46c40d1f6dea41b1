//go:build e2e

package pipelines

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"knative.dev/pkg/apis"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("the pipelines that provision", func() {
	It("refuse Windows unless the license is accepted, and download nothing", func(ctx context.Context) {
		ns := tasksNamespace(ctx)
		for _, answer := range []string{"false", "", "True"} {
			run := ended(ctx, ns, "windows-efi-installer", map[string]string{"winImageDownloadURL": "http://does.not.exist/windows.iso", "acceptEula": answer})
			Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(BeTrue(), "acceptEula %q was accepted", answer)
			tasks := taskRuns(ctx, run)
			Expect(tasks).NotTo(HaveKey("import-win-iso"))
			Expect(tasks).NotTo(HaveKey("create-vm-root-disk"))
			Expect(suite.TaskLog(ctx, tasks["check-eula"])).To(ContainSubstring("read the license terms"))
		}
	}, SpecTimeout(boundRun))

	It("make a VM of a manifest, and delete it when its start fails", func(ctx context.Context) {
		ns, name := tasksNamespace(ctx), "manifest-"+rand.String(5)
		DeferCleanup(func(ctx context.Context) { removeVM(ctx, ns, name) }, NodeTimeout(suite.BoundEnd))
		run := ended(ctx, ns, "vm-from-manifest", map[string]string{"manifest": tinyVM(name)})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), "%s", run.Status.GetCondition(apis.ConditionSucceeded).Message)
		Expect(results(run)).To(Equal(map[string]string{"name": name, "namespace": ns}))
		suite.VMStatus(ctx, ns, name, virtv1.VirtualMachineStatusRunning)

		By("a script that fails")
		other := name + "-fails"
		run = ended(ctx, ns, "vm-from-manifest", map[string]string{"manifest": tinyVM(other), "script": "true", "secretName": "no-such-secret", "deleteOnFailure": "true"})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(BeTrue())
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: other}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(boundRun))

	It("sysprep a disk, publish it, and test it in a VM that goes again", func(ctx context.Context) {
		ns, image := tasksNamespace(ctx), "clean-"+rand.String(5)
		DeferCleanup(func(ctx context.Context) { removeImage(ctx, ns, image) }, NodeTimeout(suite.BoundEnd))
		run := ended(ctx, ns, "virt-sysprep-updater", map[string]string{
			"imageName": image, "imageURL": serveGuest(ctx, "debian"), "diskSize": "4Gi", "virtCommands": "write /etc/sysprep-mark:done",
		})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), "%s", run.Status.GetCondition(apis.ConditionSucceeded).Message)
		Expect(taskRuns(ctx, run)).NotTo(HaveKey("clean-up"), "what was published was taken away")

		By("testing it")
		run = ended(ctx, ns, "unit-test-in-vm", map[string]string{"imageName": image, "diskSize": "4Gi", "memory": "512Mi", "script": "grep done /etc/sysprep-mark"})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), "%s", run.Status.GetCondition(apis.ConditionSucceeded).Message)
		Expect(results(run)).To(HaveKeyWithValue("exitCode", "0"))
		Expect(results(run)).To(HaveKeyWithValue("stdout", ContainSubstring("done")))
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: run.Name}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(2*boundRun))

	It("leave no volume when what they clone does not come in time", func(ctx context.Context) {
		ns := tasksNamespace(ctx)
		run := ended(ctx, ns, "virt-sysprep-updater", map[string]string{"imageName": "never-" + rand.String(5), "sourceName": "no-such-image"}, func(run *tektonv1.PipelineRun) {
			run.Spec.Timeouts = &tektonv1.TimeoutFields{
				Pipeline: &metav1.Duration{Duration: 3 * time.Minute}, Tasks: &metav1.Duration{Duration: 30 * time.Second},
			}
		})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(BeTrue())
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: run.Name}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, dv, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(boundRun))
})

// ended makes a run of a pipeline as its run to copy does, with other parameters, and returns it once it ended.
func ended(ctx context.Context, ns, pipeline string, params map[string]string, changes ...func(*tektonv1.PipelineRun)) *tektonv1.PipelineRun {
	GinkgoHelper()
	return suite.EndOfPipeline(ctx, suite.StartPipeline(ctx, ns, pipeline, params, changes...), boundRun)
}

// taskRuns are the run's TaskRuns by the name of the pipeline's task.
func taskRuns(ctx context.Context, run *tektonv1.PipelineRun) map[string]*tektonv1.TaskRun {
	GinkgoHelper()
	var list tektonv1.TaskRunList
	Expect(suite.World.Client.List(ctx, &list, client.InNamespace(run.Namespace), client.MatchingLabels{"tekton.dev/pipelineRun": run.Name})).To(Succeed())
	byTask := map[string]*tektonv1.TaskRun{}
	for taskRun := range slices.Values(list.Items) {
		byTask[taskRun.Labels["tekton.dev/pipelineTask"]] = &taskRun
	}
	return byTask
}

func results(run *tektonv1.PipelineRun) map[string]string {
	values := map[string]string{}
	for _, result := range run.Status.Results {
		values[result.Name] = result.Value.StringVal
	}
	return values
}

// tinyVM is the manifest of a VM with the tiny guest.
func tinyVM(name string) string {
	GinkgoHelper()
	return `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: ` + name + `
spec:
  runStrategy: Halted
  template:
    spec:
      terminationGracePeriodSeconds: 10
      domain:
        memory:
          guest: 128Mi
        devices:
          disks:
            - name: root
              disk:
                bus: virtio
          interfaces:
            - name: default
              masquerade: {}
      networks:
        - name: default
          pod: {}
      volumes:
        - name: root
          containerDisk:
            image: ` + suite.TinyImage() + "\n"
}

func removeVM(ctx context.Context, ns, name string) {
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, vm))).To(Succeed())
}
