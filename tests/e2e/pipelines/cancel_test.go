//go:build e2e

package pipelines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// temporary are the kinds that a run of golden-image makes.
var temporary = []schema.GroupVersionKind{
	{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineList"},
	{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstanceList"},
	{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataVolumeList"},
	{Version: "v1", Kind: "PersistentVolumeClaimList"},
	{Version: "v1", Kind: "SecretList"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "LeaseList"},
}

var _ = Describe("a run that does not come to its end", Ordered, Label(publishing), func() {
	var ns, image string
	var params map[string]string
	BeforeAll(func(ctx context.Context) {
		ns, image = tasksNamespace(ctx), "halfway-"+rand.String(5)
		DeferCleanup(func(ctx context.Context) { removeImage(ctx, ns, image) }, NodeTimeout(2*suite.BoundEnd))
		params = map[string]string{
			"imageURL": serveGuest(ctx, "small"), "imageName": image, "diskSize": "256Mi", "guestUser": "root", "virtCommands": "write /etc/motd:halfway\n",
			"checkScript": "sleep 7200", "defaultInstancetype": "u1.small", "defaultPreference": "debian",
		}
	}, NodeTimeout(30*time.Minute))

	It("leaves nothing when it is cancelled while its VM boots, though finally does not run", func(ctx context.Context) {
		run := begun(ctx, ns, params)
		Expect(made(ctx, run)).To(ContainElements(HavePrefix("VirtualMachine "), HavePrefix("DataVolume "), HavePrefix("Secret ")))
		By("cancelling " + run.Name)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"status":"Cancelled"}}`))
		Expect(suite.World.Client.Patch(ctx, run.DeepCopy(), patch)).To(Succeed())
		nothingLeft(ctx, run, "Cancelled")
		Expect(taskRuns(ctx, run)).NotTo(HaveKey("clean-up"), "finally ran")
	}, SpecTimeout(2*boundRun))

	It("leaves nothing when it times out while its VM boots", suite.Thorough, func(ctx context.Context) {
		// The steps are in the cache by now, and the check would take two hours. On a busy machine a run may be over before its VM is made:
		// one with more time follows.
		var run *tektonv1.PipelineRun
		err := errOver
		for timeout := 6 * time.Minute; errors.Is(err, errOver) && timeout < boundRun; timeout *= 2 {
			run, err = begin(ctx, ns, params, func(run *tektonv1.PipelineRun) {
				run.Spec.Timeouts = &tektonv1.TimeoutFields{Pipeline: &metav1.Duration{Duration: timeout}}
			})
		}
		Expect(err).NotTo(HaveOccurred())
		nothingLeft(ctx, run, "PipelineRunTimeout")
	}, SpecTimeout(2*boundRun))
})

// begun starts a run of golden-image and returns it once its VM was made.
func begun(ctx context.Context, ns string, params map[string]string) *tektonv1.PipelineRun {
	GinkgoHelper()
	run, err := begin(ctx, ns, params)
	if err != nil {
		suite.World.Dump(ctx, GinkgoWriter, ns)
	}
	Expect(err).NotTo(HaveOccurred())
	return run
}

// errOver is of a run whose time was over before its VM was made.
var errOver = errors.New("its time was over")

// begin is begun, whose failure is for the caller to judge.
func begin(ctx context.Context, ns string, params map[string]string, changes ...func(*tektonv1.PipelineRun)) (*tektonv1.PipelineRun, error) {
	GinkgoHelper()
	run := suite.StartPipeline(ctx, ns, "golden-image", params, changes...)
	err := suite.World.Await(ctx, GinkgoWriter, run, boundRun, func(object client.Object) (string, bool, error) {
		run = object.(*tektonv1.PipelineRun)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition != nil && !condition.IsUnknown() {
			err := errors.New(condition.Message)
			if condition.Reason == "PipelineRunTimeout" {
				err = errOver
			}
			return "", false, fmt.Errorf("the run ended before its VM was made: %w", err)
		}
		boot := taskRuns(ctx, run)["boot"]
		return "its VM is not made yet", boot != nil && boot.IsSuccessful(), nil
	})
	return run, err
}

// made lists what the run's TaskRuns made and own.
func made(ctx context.Context, run *tektonv1.PipelineRun) []string {
	GinkgoHelper()
	uids := map[types.UID]bool{}
	var values []string
	for _, taskRun := range taskRuns(ctx, run) {
		uids[taskRun.UID] = true
		values = append(values, string(taskRun.UID))
	}
	of, err := labels.NewRequirement(names.LabelTaskRun, selection.In, values)
	Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, kind := range temporary {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		Expect(suite.World.Client.List(ctx, list, client.InNamespace(run.Namespace))).To(Succeed())
		for _, object := range list.Items {
			owned := slices.ContainsFunc(object.OwnerReferences, func(owner metav1.OwnerReference) bool { return uids[owner.UID] })
			// Kubernetes keeps a deleted claim as long as a pod names it, also one that has ended: those stay for their logs.
			if kind.Kind == "PersistentVolumeClaimList" && object.DeletionTimestamp != nil {
				continue
			}
			if owned || of.Matches(labels.Set(object.Labels)) {
				all = append(all, strings.TrimSuffix(kind.Kind, "List")+" "+object.Name)
			}
		}
	}
	return all
}

// nothingLeft waits until the run has ended for the reason and nothing that it made is left, while it is there itself.
func nothingLeft(ctx context.Context, run *tektonv1.PipelineRun, reason string) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, run, boundRun, func(object client.Object) (string, bool, error) {
		condition := object.(*tektonv1.PipelineRun).Status.GetCondition(apis.ConditionSucceeded)
		return "its end: " + condition.GetReason(), condition.GetReason() == reason && condition.IsFalse(), nil
	})
	Expect(err).NotTo(HaveOccurred())
	By("waiting until nothing of " + run.Name + " is left")
	Eventually(func() []string { return made(ctx, run) }).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(BeEmpty())
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed(), "the run itself is gone")
	Expect(taskRuns(ctx, run)).NotTo(BeEmpty())
	Eventually(func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(run.Namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("Reason", "LeftoversRemoved"), HaveField("Regarding.UID", run.UID), HaveField("Note", ContainSubstring("VirtualMachine ")),
		)))
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
}
