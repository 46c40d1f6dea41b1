//go:build integration

package virtualmachine

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	killed "github.com/slipway-vm/slipway/tests/fixture/breaking" // the package has a function breaking
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// copied is what a pod says that has copied.
const copied = `{"digest":"new"}`

// TestVolumesAreCopied makes single passes over VMs with claims a and b against a real API server, with no controller beside.
func TestVolumesAreCopied(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "kubevirt.io_kubevirts", "cdi.kubevirt.io")
	c, err := client.NewWithWatch(apiserver.Start(t, kinds...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, client.WithWatch){
		"once, before the VM starts":                         copiedOnce,
		"by a controller that is killed":                     copiedThroughKills,
		"never over what the VM runs on":                     notCopiedLate,
		"after a start that the note came after":             copiedAfterStart,
		"not after the volume goes back":                     wentBack,
		"with words where they do not fit":                   tooLarge,
		"anew after the pod's end":                           copiedAnew,
		"after the DataVolume is there that waits for a pod": copiedOntoDataVolume,
		"two, and one more once more":                        copiedTwo,
		"and tell how far it is":                             copiedAudibly,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// mover is a namespace with a VM whose volumes are to be copied, and plays the rest of the cluster.
type mover struct {
	*world
	c client.WithWatch
	// ran are the pods that copied, by their uids.
	ran map[types.UID]bool
	// copies listens to those that copy.
	copies *progress.Listeners
}

func newMover(t *testing.T, c client.WithWatch) *mover {
	t.Helper()
	m := &mover{world: &world{Client: c, t: t, recorder: events.NewFakeRecorder(1000)}, c: c, ran: map[types.UID]bool{}, copies: progress.New(nil)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	m.must(c.Create(t.Context(), namespace))
	m.vm = fixture.VM(namespace.Name, "vm", fixture.Claim("root", "a"))
	m.vm.Finalizers = []string{virtv1.VirtualMachineControllerFinalizer}
	m.vm.Spec.UpdateVolumesStrategy = new(virtv1.UpdateVolumesStrategyMigration)
	m.must(c.Create(t.Context(), m.vm))
	m.bind(m.claim("a", nil))
	m.bind(m.claim("b", map[string]string{names.AnnotationDigest: "old"}))
	return m
}

// claim makes a claim that is not bound.
func (m *mover) claim(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	m.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.vm.Namespace, Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	m.must(m.Create(m.t.Context(), claim))
	return claim
}

func (m *mover) bind(claim *corev1.PersistentVolumeClaim) {
	m.t.Helper()
	claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
	}
	m.must(m.Status().Update(m.t.Context(), claim))
}

// to puts the volume root onto claim, with the note that virt-api writes.
func (m *mover) to(claim string) {
	m.t.Helper()
	m.reread()
	old := m.vm.DeepCopy()
	m.vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim
	note, err := volumemigration.Next(old, m.vm)
	m.must(err)
	m.must(note.Put(m.vm))
	m.must(m.Update(m.t.Context(), m.vm))
}

func (m *mover) reread() *virtv1.VirtualMachine {
	m.t.Helper()
	m.must(m.Get(m.t.Context(), client.ObjectKeyFromObject(m.vm), m.vm))
	return m.vm
}

// by makes a pass that writes by c, and reads what it caches by cache.
func (m *mover) by(c client.Client, cache *lagging.Client) error {
	m.t.Helper()
	cache.Client = c
	r := &Reconciler{
		Client: cache, live: m.c, resolver: instancetype.Resolver{Reader: m.c}, events: m.recorder, copies: m.copies,
		options: Options{CopyImage: "registry.test/slipway:1"}, now: time.Now,
	}
	_, err := r.Reconcile(m.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m.vm)})
	return err
}

func (m *mover) pass() {
	m.t.Helper()
	m.must(m.by(m.c, &lagging.Client{}))
	m.reread()
}

// pods are those that copy, or get claims bound.
func (m *mover) pods() []corev1.Pod {
	m.t.Helper()
	list := &corev1.PodList{}
	m.must(m.List(m.t.Context(), list, client.InNamespace(m.vm.Namespace), client.MatchingLabels{names.LabelPod: volumemigration.KindPod}))
	return list.Items
}

// kubelet ends every pod that has not ended, in a phase, with a message.
func (m *mover) kubelet(phase corev1.PodPhase, message string) {
	m.t.Helper()
	for _, pod := range m.pods() {
		if pod.Status.Phase != corev1.PodPending {
			continue
		}
		m.ran[pod.UID] = true
		end := &corev1.ContainerStateTerminated{Message: message, FinishedAt: metav1.Now()}
		status := corev1.ContainerStatus{Name: "copy"}
		if pod.Status.Phase = phase; phase == corev1.PodRunning { // it is started again
			status.LastTerminationState.Terminated, end.ExitCode = end, 1
		} else {
			status.State.Terminated = end
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
		m.must(m.Status().Update(m.t.Context(), &pod))
	}
}

// claimNamed reads a claim.
func (m *mover) claimNamed(name string) *corev1.PersistentVolumeClaim {
	m.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	m.must(m.Get(m.t.Context(), client.ObjectKey{Namespace: m.vm.Namespace, Name: name}, claim))
	return claim
}

// condition is the message of a condition of the VM, "" when it is not true.
func (m *mover) condition(kind virtv1.VirtualMachineConditionType) string {
	for _, c := range m.vm.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// runsOn makes sure that the VM runs on claim, that nothing is left of a copy, and how many pods copied.
func (m *mover) runsOn(claim string, copies int) {
	m.t.Helper()
	m.reread()
	vmi := m.vmi()
	if vmi.UID == "" || vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != claim {
		m.t.Errorf("the VM runs on %+v, want %s; it says %+v", vmi.Spec.Volumes, claim, m.vm.Status)
	}
	if volumemigration.Pending(m.vm) || len(m.pods()) > 0 || m.vm.Status.VolumeUpdateState != nil || m.condition(conditionVolumes) != "" {
		m.t.Errorf("left are note %v, pods %+v, status %+v", m.vm.Annotations, m.pods(), m.vm.Status)
	}
	if len(m.ran) != copies {
		m.t.Errorf("%d pods have copied, want %d", len(m.ran), copies)
	}
}

func copiedOnce(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	source := m.claimNamed("a")
	m.to("b")
	for range 3 {
		m.pass()
	}
	pods, target := m.pods(), m.claimNamed("b")
	if len(pods) != 1 || m.vmi().UID != "" || target.Annotations[names.AnnotationDigest] != "" {
		t.Fatalf("there are pods %+v, an instance %q, and the claim says %v", pods, m.vmi().UID, target.Annotations)
	}
	state := m.vm.Status.VolumeUpdateState
	if state == nil || len(state.VolumeMigrationState.MigratedVolumes) != 1 {
		t.Fatalf("the status is %+v", m.vm.Status)
	}
	info := state.VolumeMigrationState.MigratedVolumes[0]
	if info.VolumeName != "root" || info.SourcePVCInfo.ClaimName != "a" || info.DestinationPVCInfo.ClaimName != "b" || info.SourcePVCInfo.Capacity.Storage().String() != "1Gi" {
		t.Errorf("it says %+v, %+v", info.SourcePVCInfo, info.DestinationPVCInfo)
	}
	if got := m.condition(conditionVolumes); !strings.HasPrefix(got, "CopyScheduled: volume root, from PVC a to PVC b: pod migrate-b is being started") || m.vm.Status.PrintableStatus != "Provisioning" {
		t.Errorf("the VM is %s, %q", m.vm.Status.PrintableStatus, got)
	}
	written := m.vm.ResourceVersion
	if m.pass(); m.vm.ResourceVersion != written {
		t.Error("the same is written again")
	}
	m.kubelet(corev1.PodSucceeded, copied)
	m.pass()
	m.pass()
	m.runsOn("b", 1)
	target = m.claimNamed("b")
	record := volumemigration.RecordOf(target.Annotations)
	if record == nil || record.UID != source.UID || record.Claim != "a" || record.VM != m.vm.UID || target.Annotations[names.AnnotationDigest] != "new" {
		t.Errorf("the claim says %v", target.Annotations)
	}
	if again := m.claimNamed("a"); again.ResourceVersion != source.ResourceVersion {
		t.Errorf("the source was changed: %+v", again)
	}
}

// Wherever the controller is killed, the next one ends what it began, and copies nothing a second time.
func copiedThroughKills(t *testing.T, c client.WithWatch) {
	for _, after := range []bool{false, true} {
		for n := 1; n < 20; n++ {
			b := &killed.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) {
				m := newMover(t, c)
				m.to("b")
				for range 4 {
					if err := m.by(b.Client(c), &lagging.Client{}); err != nil && !errors.Is(err, killed.ErrKilled) {
						t.Fatal(err)
					}
					if record := volumemigration.RecordOf(m.claimNamed("b").Annotations); m.vmi().UID != "" && record == nil {
						t.Fatal("the VM runs on a claim that has not its disk")
					}
					m.kubelet(corev1.PodSucceeded, copied)
				}
				for range 3 {
					m.pass()
					m.kubelet(corev1.PodSucceeded, copied)
				}
				m.runsOn("b", 1)
			})
			if !b.Broken {
				break
			}
		}
	}
}

// A pass that the cache shows the VM as it was while it had its note copies nothing, though it sees neither pod nor instance.
func notCopiedLate(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	m.to("b")
	before := m.vm.DeepCopy()
	m.pass()
	during := m.vm.DeepCopy()
	m.kubelet(corev1.PodSucceeded, copied)
	m.pass()
	m.pass()
	m.runsOn("b", 1)
	target, vmi := m.claimNamed("b"), m.vmi()
	for _, past := range []client.Object{before, during} {
		m.must(m.by(c, &lagging.Client{Past: []client.Object{past}, Unseen: []client.Object{vmi}}))
	}
	m.runsOn("b", 1)
	if again := m.claimNamed("b"); again.ResourceVersion != target.ResourceVersion || m.vmi().UID != vmi.UID {
		t.Errorf("the claim was changed: %v, or the instance is another", again.Annotations)
	}

	// Nor do two passes of which the second has not seen what the first made.
	other := newMover(t, c)
	other.to("b")
	other.pass()
	pod := other.pods()[0]
	other.must(other.by(c, &lagging.Client{Unseen: []client.Object{&pod}}))
	if pods := other.pods(); len(pods) != 1 || pods[0].UID != pod.UID {
		t.Errorf("the pods are %+v", pods)
	}
}

// A VM that was started by a cache which had not seen its change runs on what it had; that is copied when it has stopped.
func copiedAfterStart(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	past := m.reread().DeepCopy()
	m.to("b")
	m.must(m.by(c, &lagging.Client{Past: []client.Object{past}}))
	vmi := m.vmi()
	if vmi.UID == "" || vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "a" {
		t.Fatalf("the instance is %+v", vmi)
	}
	m.must(m.by(c, &lagging.Client{Unseen: []client.Object{vmi}}))
	m.pass()
	if got := m.condition(conditionVolumes); len(m.pods()) > 0 || !strings.HasPrefix(got, volumemigration.ReasonRunning) {
		t.Errorf("the VM says %q, there are pods %+v", got, m.pods())
	}
	m.must(m.Delete(t.Context(), vmi))
	m.must(m.Patch(t.Context(), vmi, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	for range 3 {
		m.pass()
		m.kubelet(corev1.PodSucceeded, copied)
	}
	m.runsOn("b", 1)
}

func wentBack(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	m.to("b")
	m.pass()
	m.to("a")
	for range 3 {
		m.pass()
	}
	m.runsOn("a", 0)
	if record := volumemigration.RecordOf(m.claimNamed("b").Annotations); record != nil {
		t.Errorf("claim b says that it has the disk: %+v", record)
	}
}

func tooLarge(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	m.to("b")
	m.pass()
	m.kubelet(corev1.PodRunning, `{"reason":"TooSmall","message":"the image's disk is 2 GiB, the volume takes at most 1 GiB"}`)
	for range 3 {
		m.pass()
	}
	got := m.condition(virtv1.VirtualMachineManualRecoveryRequired)
	if !strings.HasPrefix(got, "CopyFailed: volume root, from PVC a to PVC b: TooSmall: the image's disk is 2 GiB") || m.vm.Status.PrintableStatus != "DataVolumeError" || m.vmi().UID != "" {
		t.Errorf("the VM is %s, %q", m.vm.Status.PrintableStatus, got)
	}
	close(m.recorder.Events)
	warnings := 0
	for event := range m.recorder.Events {
		if strings.Contains(event, reasonMigrationFailed) {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("it was told %d times", warnings)
	}
	m.recorder = events.NewFakeRecorder(1000)
	m.to("a")
	for range 3 {
		m.pass()
	}
	m.runsOn("a", 1)
	if got := m.condition(virtv1.VirtualMachineManualRecoveryRequired); got != "" {
		t.Errorf("back on its claim the VM says %q", got)
	}
}

func copiedAnew(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	m.to("b")
	m.pass()
	m.kubelet(corev1.PodFailed, "")
	for range 4 {
		m.pass()
		m.kubelet(corev1.PodSucceeded, copied)
	}
	m.runsOn("b", 2)
}

// The copy of a DataVolume whose storage waits for a consumer begins when the DataVolume is done, which would write over it.
func copiedOntoDataVolume(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	dv := fixture.DataVolume(m.vm.Namespace, "c", "1Gi")
	m.must(m.Create(t.Context(), dv))
	claim := m.claim("c", nil)
	m.to("c")
	phase := func(phase cdiv1.DataVolumePhase) {
		dv.Status.Phase = phase
		m.must(m.Status().Update(t.Context(), dv))
	}
	phase(cdiv1.WaitForFirstConsumer)
	m.pass()
	m.pass()
	if pods := m.pods(); len(pods) != 1 || pods[0].Name != "bind-c" {
		t.Fatalf("the pods are %+v", pods)
	}
	phase(cdiv1.ImportInProgress)
	m.bind(claim)
	m.kubelet(corev1.PodSucceeded, "")
	m.pass()
	if got := m.condition(conditionVolumes); !strings.HasPrefix(got, volumemigration.ReasonFilling) || len(m.pods()) != 1 {
		t.Errorf("the VM says %q, the pods are %+v", got, m.pods())
	}
	phase(cdiv1.Succeeded)
	m.pass()
	if pods := m.pods(); len(pods) != 1 || pods[0].Name != "migrate-c" {
		t.Fatalf("the pods are %+v", pods)
	}
	m.kubelet(corev1.PodSucceeded, copied)
	m.pass()
	m.runsOn("c", 2)
}

// A volume that is changed again while another is copied is copied from where its disk is.
func copiedTwo(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	m.bind(m.claim("c", nil))
	m.to("b")
	m.pass()
	m.to("c")
	m.pass()
	m.pass()
	pods := m.pods()
	if len(pods) != 1 || pods[0].Name != "migrate-c" || volumemigration.RecordOf(pods[0].Annotations).Claim != "a" {
		t.Fatalf("the pods are %+v", pods)
	}
	m.kubelet(corev1.PodSucceeded, copied)
	m.pass()
	m.runsOn("c", 1)

	vmi := m.vmi()
	m.must(m.Delete(t.Context(), vmi))
	m.must(client.IgnoreNotFound(m.Patch(t.Context(), vmi, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi); !apierrors.IsNotFound(err) {
		t.Fatalf("the instance stays: %v", err)
	}
	m.to("a") // and what is there is old now
	for range 3 {
		m.pass()
		m.kubelet(corev1.PodSucceeded, copied)
	}
	m.runsOn("a", 2)
}

// The VM says what the pod says that copies its volume, for as long as that runs.
func copiedAudibly(t *testing.T, c client.WithWatch) {
	m := newMover(t, c)
	heard := make(chan struct{}, 64)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.99.41.9", strconv.Itoa(transfer.ProgressPort)))
	m.must(err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(transfer.Progress{Done: 1 << 30, Total: 4 << 30})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	m.copies = progress.New(func(context.Context, types.NamespacedName) { heard <- struct{}{} })
	go func() { _ = m.copies.Start(t.Context()) }()

	m.to("b")
	m.pass()
	pod := m.pods()[0]
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.99.41.9"}
	m.must(m.Status().Update(t.Context(), &pod))
	m.pass()
	if got := m.condition(conditionVolumes); !strings.Contains(got, "pod migrate-b copies it since ") || strings.Contains(got, "so far") {
		t.Errorf("the VM says %q before the pod was asked", got)
	}
	for got := ""; !strings.HasSuffix(got, ", 25.00% so far"); got = m.condition(conditionVolumes) {
		select {
		case <-heard: // it may be of an attempt that failed
		case <-time.After(5 * time.Minute):
			t.Fatalf("the VM says %q", got)
		}
		m.pass()
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: copied}}
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodSucceeded, []corev1.ContainerStatus{{Name: "copy", State: ended}}
	m.must(m.Status().Update(t.Context(), &pod))
	m.pass()
	m.pass()
	m.runsOn("b", 0)
	if m.copies.Follows(client.ObjectKeyFromObject(m.vm), pod.UID) {
		t.Error("the pod is listened to though it is gone")
	}
}
