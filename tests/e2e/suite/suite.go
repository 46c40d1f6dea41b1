// Package suite is what the end-to-end suites share: one installation, a namespace
// for each test, and a full account when a test fails.
package suite

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/env"
)

// Bounds of waits, generous: guests run under emulation on a busy machine.
const (
	BoundBoot   = 8 * time.Minute
	BoundImport = 8 * time.Minute
	BoundEnd    = 5 * time.Minute
	// boundNamespace is longer: no namespace goes while an aggregated API is away, such as one that a suite beside starts.
	boundNamespace = 10 * time.Minute
)

// Thorough labels long specs of which others show the most: make test leaves them out, make e2e does not.
var Thorough = ginkgo.Label("thorough")

// World is the cluster that the suite runs on, ready after Run's BeforeSuite.
var World *env.Cluster

var (
	// install puts Slipway onto the cluster.
	install = func(ctx context.Context, world *env.Cluster, out io.Writer) error { return world.Install(ctx, out) }
	// setups are what the suite at hand needs besides the installation.
	setups []func(ctx context.Context)
)

// Run runs the package's specs on a cluster with Slipway installed, after prepare.
func Run(t *testing.T, name string, prepare ...func(ctx context.Context)) {
	t.Helper()
	setups = prepare
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, name)
}

// RunOn runs the package's specs on a cluster on which installed puts Slipway.
func RunOn(t *testing.T, name string, installed func(ctx context.Context, world *env.Cluster, out io.Writer) error) {
	t.Helper()
	install = installed
	Run(t, name)
}

var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	var err error
	World, err = env.Open(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(install(ctx, World, ginkgo.GinkgoWriter)).To(gomega.Succeed())
	for _, setup := range setups {
		setup(ctx)
	}
}, ginkgo.NodeTimeout(40*time.Minute))

// Namespace makes a namespace for one test, which is deleted after it; when the test fails,
// everything in it is printed first.
func Namespace(ctx context.Context) string {
	ginkgo.GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "slipway-e2e-"}}
	gomega.Expect(World.Client.Create(ctx, ns)).To(gomega.Succeed())
	stop := World.FollowLaunchers(ctx, ns.Name)
	ginkgo.DeferCleanup(func(ctx context.Context) {
		defer stop()
		if ginkgo.CurrentSpecReport().Failed() {
			World.Dump(ctx, ginkgo.GinkgoWriter, ns.Name)
		}
		gomega.Expect(client.IgnoreNotFound(World.Client.Delete(ctx, ns))).To(gomega.Succeed())
		gomega.Expect(World.Gone(ctx, ginkgo.GinkgoWriter, ns, boundNamespace)).To(gomega.Succeed())
	}, ginkgo.NodeTimeout(boundNamespace+time.Minute))
	return ns.Name
}

// Create creates objects.
func Create(ctx context.Context, objects ...client.Object) {
	ginkgo.GinkgoHelper()
	for _, object := range objects {
		gomega.Expect(World.Client.Create(ctx, object)).To(gomega.Succeed())
	}
}

// RunningVMI waits until the VM's instance runs with its agent connected, and returns it.
func RunningVMI(ctx context.Context, namespace, name string) *virtv1.VirtualMachineInstance {
	ginkgo.GinkgoHelper()
	var running *virtv1.VirtualMachineInstance
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := World.Await(ctx, ginkgo.GinkgoWriter, vmi, BoundBoot, func(obj client.Object) (string, bool, error) {
		running = obj.(*virtv1.VirtualMachineInstance)
		agent := Condition(running, virtv1.VirtualMachineInstanceAgentConnected)
		words := string(running.Status.Phase)
		if agent {
			words += ", agent connected"
		}
		told := running.Status.GuestOSInfo.KernelRelease != ""
		if told {
			words += ", guest " + running.Status.GuestOSInfo.PrettyName
		}
		return words, running.Status.Phase == virtv1.Running && agent && told && len(running.Status.Interfaces) > 0, nil
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return running
}

// Condition says whether the instance has the condition with status True.
func Condition(vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// VMStatus waits until the VM's printableStatus is as wanted.
func VMStatus(ctx context.Context, namespace, name string, want virtv1.VirtualMachinePrintableStatus) *virtv1.VirtualMachine {
	ginkgo.GinkgoHelper()
	var found *virtv1.VirtualMachine
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := World.Await(ctx, ginkgo.GinkgoWriter, vm, BoundBoot, func(obj client.Object) (string, bool, error) {
		found = obj.(*virtv1.VirtualMachine)
		return string(found.Status.PrintableStatus), found.Status.PrintableStatus == want, nil
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return found
}

// DataVolume waits until the DataVolume is in the phase, and returns it.
func DataVolume(ctx context.Context, namespace, name string, want cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	ginkgo.GinkgoHelper()
	return DataVolumeUntil(ctx, namespace, name, func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == want })
}

// DataVolumeUntil waits until the DataVolume is as done says, and returns it.
func DataVolumeUntil(ctx context.Context, namespace, name string, done func(*cdiv1.DataVolume) bool) *cdiv1.DataVolume {
	ginkgo.GinkgoHelper()
	var found *cdiv1.DataVolume
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := World.Await(ctx, ginkgo.GinkgoWriter, dv, BoundImport, func(obj client.Object) (string, bool, error) {
		found = obj.(*cdiv1.DataVolume)
		var words strings.Builder
		fmt.Fprintf(&words, "%s %s", found.Status.Phase, found.Status.Progress)
		for _, c := range found.Status.Conditions {
			if c.Message != "" {
				fmt.Fprintf(&words, "; %s: %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		return words.String(), done(found), nil
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return found
}

// Shell runs a script in the tiny guest behind the instance and returns what it printed.
func Shell(ctx context.Context, vmi *virtv1.VirtualMachineInstance, script string) string {
	ginkgo.GinkgoHelper()
	out, err := env.Shell(ctx, vmi.Status.Interfaces[0].IP, script, BoundBoot)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return out
}

// PowerOff has the tiny guest behind the instance power itself off.
func PowerOff(ctx context.Context, vmi *virtv1.VirtualMachineInstance) {
	ginkgo.GinkgoHelper()
	gomega.Expect(env.PowerOff(ctx, vmi.Status.Interfaces[0].IP, BoundBoot)).To(gomega.Succeed())
}

// Reboot has the tiny guest behind the instance boot anew, at once.
func Reboot(ctx context.Context, vmi *virtv1.VirtualMachineInstance) {
	ginkgo.GinkgoHelper()
	gomega.Expect(env.Reboot(ctx, vmi.Status.Interfaces[0].IP, BoundBoot)).To(gomega.Succeed())
}

// May waits until a ServiceAccount of namespace may do with a resource what attributes say: what a new RoleBinding
// gives counts only once the API server has heard of it itself.
func May(ctx context.Context, namespace, account string, attributes authorizationv1.ResourceAttributes) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":" + account,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		g.Expect(World.Client.Create(ctx, review)).To(gomega.Succeed())
		g.Expect(review.Status.Allowed).To(gomega.BeTrue(), "%s of %s may %s %s", account, namespace, attributes.Verb, attributes.Resource)
	}, BoundEnd, time.Second).Should(gomega.Succeed())
}

// TinyImage is the reference of the tiny guest's container disk.
func TinyImage() string {
	ginkgo.GinkgoHelper()
	images, err := World.Images()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(images).To(gomega.HaveKey("guest-tiny"))
	return images["guest-tiny"].Ref
}
