//go:build integration

package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// run brings a new VM to Running.
func (c *cluster) run(t *testing.T, name string) (client.ObjectKey, *corev1.Pod) {
	t.Helper()
	vm := newVM(c.namespace(t), name)
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.launcher(t, key)
	c.bind(t, p, nodeName)
	c.vmiSays(t, key, string(virtv1.Scheduling), phase)
	c.report(t, p, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.guestRuns(t, key)
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	return key, p
}

// A start costs four writes to the VMI: its creation, Scheduling, Scheduled, and virt-handler's Running.
func TestAStartCostsFourWrites(t *testing.T) {
	c := start(t)
	list := &virtv1.VirtualMachineInstanceList{}
	ns := c.namespace(t)
	must(t, c.List(t.Context(), list, client.InNamespace(ns)))
	writes := apiserver.Watch(t, c, list, client.InNamespace(ns))
	vm := newVM(ns, "counted")
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.launcher(t, key)
	c.bind(t, p, nodeName)
	c.vmiSays(t, key, string(virtv1.Scheduling), phase)
	if vmi := c.vmi(t, key); vmi.Labels[virtv1.NodeNameLabel] != nodeName || vmi.Status.ActivePods[p.UID] != nodeName {
		t.Errorf("a placed VMI has label %q and pods %v", vmi.Labels[virtv1.NodeNameLabel], vmi.Status.ActivePods)
	}
	c.report(t, p, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.guestRuns(t, key)
	vm = c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	if !vm.Status.Ready || !vm.Status.Created || vm.Status.ObservedGeneration != vm.Generation {
		t.Errorf("a running VM's status is %+v", vm.Status)
	}
	var seen []string
	for last := c.vmi(t, key).ResourceVersion; ; {
		var event watch.Event
		gomega.NewWithT(t).Eventually(writes.ResultChan(), bound).Should(gomega.Receive(&event), "writes after %v", seen)
		vmi := event.Object.(*virtv1.VirtualMachineInstance)
		seen = append(seen, string(vmi.Status.Phase))
		if vmi.ResourceVersion == last {
			break
		}
	}
	if got := strings.Join(seen, " "); got != "Pending Scheduling Scheduled Running" {
		t.Errorf("the VMI was written as %s", got)
	}
}

func TestStoppingEndsThePodWithItsGrace(t *testing.T) {
	c := start(t)
	key, p := c.run(t, "stopped")
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	must(t, c.Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Halted"}}`))))
	gomega.NewWithT(t).Eventually(func() (*int64, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p)
		return p.DeletionGracePeriodSeconds, err
	}, bound, "50ms").Should(gomega.HaveValue(gomega.BeEquivalentTo(45)))
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopping)
	must(t, c.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	c.gone(t, &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	must(t, c.Delete(t.Context(), vm))
	c.gone(t, vm)
}

func TestAFailedStartIsTriedAgainLater(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "crashing")
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.launcher(t, key)
	c.bind(t, p, nodeName)
	becomes := c.becoming(t, key)
	c.report(t, p, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodFailed
		status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", Image: "img", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no file in /disk"},
		}}}
	})
	vm = becomes(virtv1.VirtualMachineStatusCrashLoopBackOff)
	if f := vm.Status.StartFailure; f == nil || f.ConsecutiveFailCount != 1 || f.RetryAfterTimestamp == nil {
		t.Errorf("the failure is told as %+v", f)
	}
	_ = c.Delete(t.Context(), p, client.GracePeriodSeconds(0))
	again := c.launcher(t, key, p.UID)
	if again.UID == p.UID {
		t.Error("the pod is the same")
	}
}

func TestAMissingClaimIsNamedAndThenTaken(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "claims")
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{
		PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "late"}},
	}}}
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	c.vmiSays(t, key, "False FailedPvcNotFound PVC late not found", condition(virtv1.VirtualMachineInstanceSynchronized))
	c.vmIs(t, key, virtv1.VirtualMachineStatusPvcNotFound)
	claim := c.claim(t, key.Namespace, "late", "")
	c.vmiSays(t, key, "is unbound", condition(virtv1.VirtualMachineInstanceSynchronized))
	claim.Status.Phase = corev1.ClaimBound
	must(t, c.Status().Update(t.Context(), claim))
	p := c.launcher(t, key)
	if name := p.Spec.Volumes[len(p.Spec.Volumes)-1].PersistentVolumeClaim.ClaimName; name != "late" {
		t.Errorf("the pod has claim %q", name)
	}
}

func (c *cluster) claim(t *testing.T, namespace, name, class string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	must(t, c.Create(t.Context(), claim))
	return claim
}

// A disk whose claim waits for its first consumer is bound by the provisioning pod, which
// goes when it has ended; then the import is told.
func TestADiskThatWaitsForAConsumerGetsOne(t *testing.T) {
	c := start(t)
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "late-binding"}, Provisioner: "disks.example",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	must(t, c.Create(t.Context(), class))
	vm := newVM(c.namespace(t), "provisioned")
	must(t, yaml.Unmarshal([]byte(`
spec:
  dataVolumeTemplates: [{metadata: {name: data}, spec: {source: {blank: {}}, storage: {storageClassName: late-binding, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}]
`), vm))
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "data"}}}}
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.podOf(t, key, pod.KindProvisioner)
	c.vmIs(t, key, virtv1.VirtualMachineStatusWaitingForVolumeBinding)
	claim := &corev1.PersistentVolumeClaim{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "data"}, claim))
	claim.Spec.VolumeName = "pv"
	must(t, c.Update(t.Context(), claim))
	claim.Status.Phase = corev1.ClaimBound
	must(t, c.Status().Update(t.Context(), claim))
	c.bind(t, p, nodeName)
	c.vmiSays(t, key, "import of DataVolume data", condition(virtv1.VirtualMachineInstanceProvisioning))
	c.report(t, p, func(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded })
	c.gone(t, p)
}

func TestALostNodeEndsItsVMIsAndASilentHandlerDoesNot(t *testing.T) {
	c := start(t)
	silent := c.makeNode(t, "silent", time.Now().Add(-time.Hour), corev1.ConditionTrue)
	vm := newVM(c.namespace(t), "lost")
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.launcher(t, key)
	c.bind(t, p, silent.Name)
	c.report(t, p, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.guestRuns(t, key)
	gomega.NewWithT(t).Eventually(func() (string, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(silent), silent)
		return silent.Labels[virtv1.NodeSchedulable], err
	}, bound, "50ms").Should(gomega.Equal("false"), "the node is closed")
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	c.ready(t, silent, corev1.ConditionUnknown)
	c.vmiSays(t, key, "Failed NodeUnresponsive", func(vmi *virtv1.VirtualMachineInstance) string {
		return string(vmi.Status.Phase) + " " + vmi.Status.Reason
	})
	must(t, c.Delete(t.Context(), silent))
}

func TestWhatThePodWaitsForIsTold(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "waiting")
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	p := c.launcher(t, key)
	c.report(t, p, func(status *corev1.PodStatus) {
		status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes"}}
	})
	c.vmIs(t, key, virtv1.VirtualMachineStatusUnschedulable)
	c.bind(t, p, nodeName)
	c.report(t, p, func(status *corev1.PodStatus) {
		status.Conditions = nil
		status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", Image: "img", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"},
		}}}
	})
	c.vmIs(t, key, virtv1.VirtualMachineStatusErrImagePull)
	c.vmiSays(t, key, "image img of container volumeroot: no such host", condition(virtv1.VirtualMachineInstanceSynchronized))
	c.report(t, p, func(status *corev1.PodStatus) {
		status.Phase, status.Reason, status.Message = corev1.PodFailed, "UnexpectedAdmissionError", "no healthy devices"
		status.InitContainerStatuses = nil
	})
	again := c.launcher(t, key, p.UID)
	c.bind(t, again, nodeName)
	c.report(t, again, computeRuns)
	c.vmiSays(t, key, string(virtv1.Scheduled), phase)
	c.vmiSays(t, key, "none", condition(virtv1.VirtualMachineInstanceSynchronized))
}

// Without KVM and without leave to emulate, a VMI waits and says what can be done; when
// that is done its pod is made anew.
func TestWithoutKVMAVMIWaitsUntilEmulationIsAllowed(t *testing.T) {
	c := start(t)
	c.useEmulation(t, false)
	t.Cleanup(func() { c.useEmulation(t, true) })
	var key client.ObjectKey
	var p *corev1.Pod
	gomega.NewWithT(t).Eventually(func() bool { // a VM that comes before virt-controller has seen it may still be emulated
		vm := newVM(c.namespace(t), "kvm")
		must(t, c.Create(t.Context(), vm))
		key = client.ObjectKeyFromObject(vm)
		p = c.launcher(t, key)
		kvm := p.Spec.Containers[0].Resources.Limits[names.DeviceKVM]
		return !kvm.IsZero()
	}, bound, "200ms").Should(gomega.BeTrue(), "the pod of a new VM asks for KVM")
	c.report(t, p, func(status *corev1.PodStatus) {
		status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "Insufficient devices.kubevirt.io/kvm"}}
	})
	c.vmiSays(t, key, "useEmulation to true", condition("PodScheduled"))
	c.useEmulation(t, true)
	again := c.launcher(t, key, p.UID)
	if kvm, asked := again.Spec.Containers[0].Resources.Limits[names.DeviceKVM]; asked {
		t.Errorf("the new pod asks for %s KVM", kvm.String())
	}
}

func TestAnUnsupportedFieldIsRefusedThroughTheAPIServer(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "refused")
	vm.Spec.Template.Spec.Domain.Devices.Watchdog = &virtv1.Watchdog{Name: "w", WatchdogDevice: virtv1.WatchdogDevice{Diag288: &virtv1.Diag288Watchdog{Action: "reset"}}}
	err := c.Create(t.Context(), vm)
	if err == nil || !strings.Contains(err.Error(), "spec.template.spec.domain.devices.watchdog.diag288.action") {
		t.Errorf("got %v", err)
	}
}

// as is a client of a user who may do everything that admission lets him, once the API server knows that.
func as(t *testing.T, config *rest.Config, user string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"everything", "system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	grant(t.Context(), t)
	gomega.NewWithT(t).Eventually(func() error { return c.List(t.Context(), &corev1.NodeList{}) }, bound, "50ms").Should(gomega.Succeed(), "%s may do everything", user)
	return c
}

func grant(ctx context.Context, t *testing.T) {
	t.Helper()
	binding := newBinding()
	if err := shared.Create(ctx, binding); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

func newBinding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "everything"}},
	}
}
