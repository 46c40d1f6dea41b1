//go:build e2e_installer

// Package installer tests the pipeline debian-installer with Debian's own installer: a real unattended
// installation from an empty disk to a published image. It takes an hour or more under emulation, so it
// has a target of its own, `make e2e-installer`.
package installer

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"
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
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/e2e/installer/disc"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// Bounds: of the pipeline that installs under emulation, of one whose installation fails early, and of the installed system's boot in a VM.
const (
	boundInstall = 4 * time.Hour
	boundFailure = 90 * time.Minute
	boundBoot    = 20 * time.Minute
)

func TestInstaller(t *testing.T) { suite.Run(t, "installer") }

var _ = Describe("debian-installer", func() {
	It("installs Debian unattended and publishes a disk that boots", func(ctx context.Context) {
		ns, image := suite.TasksNamespace(ctx), "installed-"+rand.String(5)
		DeferCleanup(func(ctx context.Context) { remove(ctx, ns, image) }, NodeTimeout(suite.BoundEnd))
		run := install(ctx, ns, image, nil, boundInstall)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		Expect(condition.IsTrue()).To(BeTrue(), "%s", condition.Message)

		source := &cdiv1.DataSource{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: image}, source)).To(Succeed())
		Expect(source.Spec.Source.PVC).NotTo(BeNil())
		Expect(source.Spec.Source.PVC.Name).To(Equal(run.Name))
		left(ctx, ns, run.Name+"-disc", run.Name)
		boots(ctx, ns, image)
	}, SpecTimeout(boundInstall+boundBoot))

	It("sees an installation that fails in the guest, names why, and leaves nothing", func(ctx context.Context) {
		ns, image := suite.TasksNamespace(ctx), "broken-"+rand.String(5)
		run := install(ctx, ns, image, map[string]string{"mirrorHostname": "mirror.invalid", "mirrorProxy": ""}, boundFailure)
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(BeTrue(), "an installation from a mirror that does not exist succeeded")
		var waits tektonv1.TaskRunList
		Expect(suite.World.Client.List(ctx, &waits, client.InNamespace(ns), client.MatchingLabels{"tekton.dev/pipelineRun": run.Name, "tekton.dev/pipelineTask": "wait"})).To(Succeed())
		Expect(waits.Items).To(HaveLen(1))
		Expect(waits.Items[0].Status.Steps).NotTo(BeEmpty())
		log := suite.TaskLog(ctx, &waits.Items[0])
		Expect(waits.Items[0].Status.Steps[0].Terminated.ExitCode).To(BeEquivalentTo(2), "the wait ended by something else than the guest's failure: %s", log)
		Expect(log).To(ContainSubstring("slipway-installer: failed: "), "the wait does not say why")
		Expect(log).To(ContainSubstring("mirror"), "the wait names another reason than the mirror")
		left(ctx, ns, run.Name+"-disc", run.Name)
		volume := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: run.Name}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, volume, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(boundFailure+10*time.Minute))
})

// install runs the pipeline with a disc that is made now, with other parameters than the usual, and waits for its end.
func install(ctx context.Context, ns, image string, other map[string]string, bound time.Duration) *tektonv1.PipelineRun {
	GinkgoHelper()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	mirror, err := disc.Mirror(ctx)
	Expect(err).NotTo(HaveOccurred())
	proxy, err := suite.World.Serve(serving, mirror)
	Expect(err).NotTo(HaveOccurred())
	preseed, err := os.ReadFile(filepath.Join(suite.World.Root, "pipelines/debian-installer/preseed.cfg"))
	Expect(err).NotTo(HaveOccurred())
	path, err := disc.Build(ctx, GinkgoT().TempDir(), preseed)
	Expect(err).NotTo(HaveOccurred())
	root, err := suite.World.Serve(serving, http.FileServer(http.Dir(filepath.Dir(path))))
	Expect(err).NotTo(HaveOccurred())

	params := map[string]string{
		"installerURL": root + "/" + filepath.Base(path), "installerSize": "256Mi", "imageName": image, "rootDiskSize": "4Gi", "cores": "2", "memory": "1Gi",
		"mirrorProxy": proxy, "answers": "pkgsel/include=qemu-guest-agent", // nothing more, for under emulation each package takes minutes
		"defaultInstancetype": "u1.small", "defaultPreference": "debian",
	}
	maps.Copy(params, other)
	return suite.EndOfPipeline(ctx, suite.StartPipeline(ctx, ns, "debian-installer", params), bound)
}

// boots makes a VM of the image and waits until its guest agent says that Debian runs in it.
func boots(ctx context.Context, ns, image string) {
	GinkgoHelper()
	vm := &virtv1.VirtualMachine{}
	Expect(yaml.UnmarshalStrict([]byte(fmt.Sprintf(bootManifest, image)), vm)).To(Succeed())
	vm.Namespace = ns
	suite.Create(ctx, vm)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, vm))).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
	}, NodeTimeout(suite.BoundEnd))
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vm.Name}}
	Expect(suite.World.Await(ctx, GinkgoWriter, vmi, boundBoot, func(object client.Object) (string, bool, error) {
		vmi = object.(*virtv1.VirtualMachineInstance)
		return fmt.Sprintf("in phase %s, the agent says %q", vmi.Status.Phase, vmi.Status.GuestOSInfo.PrettyName), vmi.Status.GuestOSInfo.ID == "debian", nil
	})).To(Succeed())
}

// bootManifest is a VM whose disk is a clone of the image.
const bootManifest = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: %[1]s
spec:
  runStrategy: Always
  dataVolumeTemplates:
    - metadata:
        name: %[1]s-root
      spec:
        sourceRef:
          kind: DataSource
          name: %[1]s
        storage: {}
  template:
    spec:
      domain:
        memory:
          guest: 512Mi
        devices:
          rng: {}
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
          dataVolume:
            name: %[1]s-root
`

// left makes sure that finally took the disc and the VM away.
func left(ctx context.Context, ns, volume, vm string) {
	GinkgoHelper()
	for _, object := range []client.Object{
		&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: volume}},
		&virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vm}},
	} {
		Expect(suite.World.Gone(ctx, GinkgoWriter, object, suite.BoundEnd)).To(Succeed())
	}
}

// remove deletes what the test published.
func remove(ctx context.Context, ns, image string) {
	if CurrentSpecReport().Failed() {
		suite.World.Dump(ctx, GinkgoWriter, ns)
	}
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: image}}
	Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, source))).To(Succeed())
	Expect(suite.World.Client.DeleteAllOf(ctx, &cdiv1.DataVolume{}, client.InNamespace(ns), client.MatchingLabels{"slipway-vm.github.io/golden-image": image})).To(Succeed())
}
