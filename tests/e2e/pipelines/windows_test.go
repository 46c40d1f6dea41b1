//go:build e2e

package pipelines

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"knative.dev/pkg/apis"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/e2e/pipelines/windows"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// noticed is how long after a guest's panic its run may go on, on a busy machine. One that nobody tells of the panic goes on for hours.
const noticed = 10 * time.Minute

// The disc is a stand-in, see package windows: no Windows is booted here.
var _ = Describe("the pipelines for Windows, on a stand-in for its disc", Label(publishing), func() {
	It("install it, customize what was installed, and publish both", func(ctx context.Context) {
		ns, image := tasksNamespace(ctx), "win-"+rand.String(5)
		params := rehearsal(ctx, ns, image)
		params["winImageDownloadURL"] = serveStandIn(ctx)
		for _, pipeline := range []string{"windows-efi-installer", "windows-customize"} {
			Expect(suite.World.ApplyFile(ctx, filepath.Join("pipelines", pipeline, "answers.yaml"), ns)).To(Succeed())
		}

		By("installing")
		run := ended(ctx, ns, "windows-efi-installer", params)
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), "%s", run.Status.GetCondition(apis.ConditionSucceeded).Message)
		Expect(results(run)).To(Equal(map[string]string{"baseDvName": image, "baseDvNamespace": ns}))
		Expect(suite.TaskLog(ctx, taskRuns(ctx, run)["modify-windows-iso-file"])).To(ContainSubstring("boots without a prompt now"))
		source := &cdiv1.DataSource{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: image}, source)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmOf(run.Namespace, run.Name), suite.BoundEnd)).To(Succeed())

		By("customizing")
		custom := image + "-custom"
		DeferCleanup(func(ctx context.Context) { removeDisk(ctx, ns, custom) }, NodeTimeout(suite.BoundEnd))
		run = ended(ctx, ns, "windows-customize", map[string]string{
			"sourceDiskImageName": image, "baseDvName": custom, "rootDiskSize": params["rootDiskSize"], "virtioContainerDiskName": params["virtioContainerDiskName"],
			"instanceTypeName": params["instanceTypeName"], "preferenceName": params["preferenceName"],
		})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), "%s", run.Status.GetCondition(apis.ConditionSucceeded).Message)

		By("booting what came of it")
		vm := fixture.VM(ns, custom+"-boots", fixture.Claim("root", custom), fixture.Memory("512Mi"))
		vm.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		vm.Spec.Template.Spec.Domain.Firmware = &virtv1.Firmware{Bootloader: &virtv1.Bootloader{EFI: &virtv1.EFI{SecureBoot: new(false)}}}
		DeferCleanup(func(ctx context.Context) { removeVM(ctx, ns, vm.Name) }, NodeTimeout(suite.BoundEnd))
		suite.Create(ctx, vm)
		Eventually(console).WithContext(ctx).WithArguments(ns, vm.Name).WithTimeout(suite.BoundBoot).WithPolling(time.Second).
			Should(ContainSubstring("slipway-installer: nothing to do; customized by https://"), "the serial console of %s", vm.Name)
	}, SpecTimeout(3*boundRun))

	It("fail as soon as the guest panics, with its last words, and leave nothing", func(ctx context.Context) {
		ns, image := tasksNamespace(ctx), "win-"+rand.String(5)
		params := rehearsal(ctx, ns, image)
		params["winImageDownloadURL"] = serveStandIn(ctx)
		params["autounattendConfigMapName"] = image
		broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: image}, Data: map[string]string{"Autounattend.xml": "<unattend>"}}
		suite.Create(ctx, broken)
		DeferCleanup(func(ctx context.Context) { _ = suite.World.Client.Delete(ctx, broken) }, NodeTimeout(suite.BoundEnd))
		run := ended(ctx, ns, "windows-efi-installer", params)
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(BeTrue())

		By("looking at why")
		wait := taskRuns(ctx, run)["wait-for-vmi-status"]
		Expect(wait).NotTo(BeNil(), "the installer was not waited for")
		Expect(suite.TaskLog(ctx, wait)).To(And(ContainSubstring("GuestPanicked"), ContainSubstring("Autounattend.xml is not a whole answer file")))
		panicked := panicOf(ctx, ns, run.Name)
		Expect(panicked.Message).To(ContainSubstring("sysrq triggered crash"))
		Expect(wait.Status.CompletionTime.Time).To(BeTemporally("<", at(panicked).Add(noticed)), "the run went on after the panic")

		By("looking for what is left")
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmOf(ns, run.Name), suite.BoundEnd)).To(Succeed())
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: image}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, dv, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(boundRun))
})

// rehearsal makes what a run of windows-efi-installer needs of the cluster, and returns its
// parameters but for the disc.
func rehearsal(ctx context.Context, ns, image string) map[string]string {
	GinkgoHelper()
	size, likes := &v1beta1.VirtualMachineClusterInstancetype{}, &v1beta1.VirtualMachineClusterPreference{}
	Expect(yaml.UnmarshalStrict([]byte(`{spec: {cpu: {guest: 1}, memory: {guest: 512Mi}}}`), size)).To(Succeed())
	Expect(yaml.UnmarshalStrict([]byte(`{spec: {firmware: {preferredEfi: {secureBoot: false}}}}`), likes)).To(Succeed())
	size.Name, likes.Name = image, image
	suite.Create(ctx, size, likes)
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			suite.World.Dump(ctx, GinkgoWriter, ns)
		}
		removeDisk(ctx, ns, image)
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, size))).To(Succeed())
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, likes))).To(Succeed())
	}, NodeTimeout(suite.BoundEnd))
	return map[string]string{
		"acceptEula": "true", "instanceTypeName": image, "preferenceName": image, "baseDvName": image, "isoDVName": image + "-disc",
		"isoSize": "64Mi", "rootDiskSize": "64Mi", "virtioContainerDiskName": suite.TinyImage(),
	}
}

// removeDisk deletes what a run published.
func removeDisk(ctx context.Context, ns, name string) {
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	for _, object := range []client.Object{&cdiv1.DataSource{ObjectMeta: meta}, &cdiv1.DataVolume{ObjectMeta: meta}} {
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, object))).To(Succeed())
	}
}

// serveStandIn makes the disc and serves it until the test ends.
func serveStandIn(ctx context.Context) string {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "slipway-windows-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = os.RemoveAll(dir) })
	disc, err := windows.Build(ctx, dir)
	Expect(err).NotTo(HaveOccurred())
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, http.FileServer(http.Dir(dir)))
	Expect(err).NotTo(HaveOccurred())
	return root + "/" + filepath.Base(disc)
}

func vmOf(ns, name string) *virtv1.VirtualMachine {
	return &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// console is what the guest of a VM wrote to its serial port, as far as there is any.
func console(ctx context.Context, ns, name string) (string, error) {
	var pods corev1.PodList
	err := suite.World.Client.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"vm.kubevirt.io/name": name})
	if err != nil || len(pods.Items) == 0 {
		return "", err
	}
	text, err := suite.World.Log(ctx, ns, pods.Items[0].Name, "compute")
	if err != nil {
		return err.Error(), nil //nolint:nilerr // a container that does not run yet has no log
	}
	return text, nil
}

// panicOf waits for the event that tells of a guest's panic.
func panicOf(ctx context.Context, ns, name string) corev1.Event {
	GinkgoHelper()
	var found corev1.Event
	Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(ns))).To(Succeed())
		var told []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind != "VirtualMachineInstance" || e.InvolvedObject.Name != name {
				continue
			}
			if found = e; e.Reason == "GuestPanicked" {
				return
			}
			told = append(told, e.Reason)
		}
		g.Expect(told).To(ContainElement("GuestPanicked"))
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	return found
}

func at(e corev1.Event) time.Time {
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}
