//go:build e2e

package admission

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// elsewhere is a node that the cluster does not have, account the ServiceAccount of every virt-handler.
const elsewhere, account = "elsewhere", "virt-handler"

var _ = Describe("a virt-handler", func() {
	It("changes what is its own node's, and nothing of another", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		// Neither has a system, so that nothing boots.
		nowhere := fixture.VM(ns, "nowhere", fixture.EmptyDisk("scratch", "16Mi"))
		nowhere.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: elsewhere}
		suite.Create(ctx, fixture.VM(ns, "here", fixture.EmptyDisk("scratch", "16Mi")), nowhere)
		suite.VMStatus(ctx, ns, "here", virtv1.VirtualMachineStatusRunning)
		suite.VMStatus(ctx, ns, "nowhere", virtv1.VirtualMachineStatusUnschedulable)
		here := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "here"}}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(here), here)).To(Succeed())
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: here.Status.NodeName}}
		own, other := handlerOn(ctx, node.Name), handlerElsewhere()

		By("changing what is its own node's")
		own.tries(ctx, here, `{"status":{"reason":"Tried"}}`, "")
		own.tries(ctx, node, `{"metadata":{"annotations":{"tried":"yes"}}}`, "")

		By("changing more of that than is for it to change")
		own.tries(ctx, here, `{"status":{"nodeName":"elsewhere"}}`, "may only change the status of a machine, and not where it runs")
		own.tries(ctx, here, `{"metadata":{"annotations":{"tried":"yes"}}}`, "may only change the status of a machine")
		own.tries(ctx, node, `{"spec":{"taints":[{"key":"tried","effect":"PreferNoSchedule"}]}}`, "may only change labels and annotations of its node")
		capacity := client.RawPatch(types.MergePatchType, []byte(`{"status":{"capacity":{"devices.kubevirt.io/kvm":"9"}}}`))
		dry := &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}}
		err := own.Status().Patch(ctx, node.DeepCopy(), capacity, dry)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "writing what the kubelet says: %v", err)

		By("changing what is another node's, or no node's")
		other.tries(ctx, here, `{"status":{"reason":"Tried"}}`, "may only change what runs on its own node")
		other.tries(ctx, node, `{"metadata":{"annotations":{"tried":"yes"}}}`, "may only change what runs on its own node")
		unplaced := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nowhere"}}
		own.tries(ctx, unplaced, `{"status":{"reason":"Tried"}}`, "may only change what runs on its own node")
	}, SpecTimeout(20*time.Minute))
})

// handler is a client with the rights of the virt-handler of a node.
type handler struct {
	client.Client
	node string
}

// tries changes an object, but for the writing, and expects a refusal in these words; none for "".
func (h handler) tries(ctx context.Context, object client.Object, change, refusal string) {
	GinkgoHelper()
	object, ok := object.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	err := h.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
	if refusal == "" {
		Expect(err).NotTo(HaveOccurred(), "%s of %T %s", change, object, object.GetName())
		return
	}
	Expect(err).To(MatchError(ContainSubstring("virt-handler of node "+h.node+" "+refusal)), "%s of %T %s", change, object, object.GetName())
}

// handlerOn has a token such as the kubelet gives to the virt-handler of a node: it says which pod and node it is for.
func handlerOn(ctx context.Context, node string) handler {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(names.InstallNamespace), client.MatchingLabels{virtv1.AppLabel: "virt-handler"})).To(Succeed())
	at := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node && pod.DeletionTimestamp == nil })
	Expect(at).To(BeNumerically(">=", 0), "no virt-handler runs on node %s", node)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pods.Items[at].Name, UID: pods.Items[at].UID},
	}}
	token, err := suite.World.Kube.CoreV1().ServiceAccounts(names.InstallNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config := rest.AnonymousClientConfig(suite.World.Config)
	config.BearerToken = token.Status.Token
	return handler{connect(config), node}
}

// handlerElsewhere is taken for the virt-handler of a node that the cluster does not have.
func handlerElsewhere() handler {
	GinkgoHelper()
	config := rest.CopyConfig(suite.World.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + names.InstallNamespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + names.InstallNamespace, "system:authenticated"},
		Extra: map[string][]string{
			"authentication.kubernetes.io/node-name": {elsewhere}, "authentication.kubernetes.io/pod-name": {account + "-" + elsewhere},
		},
	}
	return handler{connect(config), elsewhere}
}

func connect(config *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(config, client.Options{Scheme: suite.World.Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}
