//go:build integration

package virtualmachine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// dumped is a VM that runs, and whose memory is asked for.
func dumped(t *testing.T, w *world) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: "dumps"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Create(t.Context(), claim))
	w.pass(&lagging.Client{})
	vmi := w.vmi()
	vmi.Status.Phase = virtv1.Running
	w.must(w.Update(t.Context(), vmi))
	w.askDump(&virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps", Phase: virtv1.MemoryDumpAssociating})
}

// askDump is virt-api.
func (w *world) askDump(request *virtv1.VirtualMachineMemoryDumpRequest) {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	w.vm.Status.MemoryDumpRequest = request
	w.must(w.Status().Update(w.t.Context(), w.vm))
}

// dumps makes passes until the request is in the phase, or is gone when that is empty.
func (w *world) dumps(want virtv1.MemoryDumpPhase) *virtv1.VirtualMachineMemoryDumpRequest {
	w.t.Helper()
	var phase virtv1.MemoryDumpPhase
	for range 5 {
		w.pass(&lagging.Client{})
		w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
		phase = ""
		if w.vm.Status.MemoryDumpRequest != nil {
			phase = w.vm.Status.MemoryDumpRequest.Phase
		}
		if phase == want {
			return w.vm.Status.MemoryDumpRequest
		}
	}
	w.t.Fatalf("the memory dump is %q, want %q", phase, want)
	return nil
}

// node is virt-handler: what it says of the volume, nothing for none.
func (w *world) node(status ...virtv1.VolumeStatus) {
	w.t.Helper()
	vmi := w.vmi()
	vmi.Status.VolumeStatus = status
	w.must(w.Update(w.t.Context(), vmi))
}

func (w *world) has(template, running bool) {
	w.t.Helper()
	if got := hotplug.HasDump(&w.vm.Spec.Template.Spec, "dumps"); got != template {
		w.t.Errorf("the template has the volume: %v", got)
	}
	if got := hotplug.HasDump(&w.vmi().Spec, "dumps"); got != running {
		w.t.Errorf("the instance has the volume: %v", got)
	}
}

func (w *world) noted(want string) {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.vm.Namespace, Name: "dumps"}, claim))
	if got := claim.Annotations[virtv1.PVCMemoryDumpAnnotation]; got != want {
		w.t.Errorf("the claim is noted as %q, want %q", got, want)
	}
}

func memoryDumped(t *testing.T, w *world) {
	dumped(t, w)
	w.dumps(virtv1.MemoryDumpInProgress)
	w.has(true, true)
	w.wantRestart("the dump's volume", "")
	began, ended := metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy(), metav1.Now().Rfc3339Copy()
	info := &virtv1.DomainMemoryDumpInfo{ClaimName: "dumps", TargetFileName: "vm-dumps-1.memory.dump", StartTimestamp: &began}
	status := virtv1.VolumeStatus{Name: "dumps", Phase: virtv1.MemoryDumpVolumeInProgress, MemoryDumpVolume: info}
	w.node(status)
	if request := w.dumps(virtv1.MemoryDumpInProgress); !request.StartTimestamp.Equal(&began) {
		t.Errorf("got %+v", request)
	}
	info.EndTimestamp, status.Phase = &ended, virtv1.MemoryDumpVolumeCompleted
	w.node(status)
	request := w.dumps(virtv1.MemoryDumpUnmounting)
	if request.FileName == nil || *request.FileName != info.TargetFileName || !request.EndTimestamp.Equal(&ended) {
		t.Errorf("got %+v", request)
	}
	w.noted(info.TargetFileName)
	w.pass(&lagging.Client{})
	w.has(true, false)
	w.dumps(virtv1.MemoryDumpUnmounting) // the node holds the claim still
	w.node()
	w.dumps(virtv1.MemoryDumpCompleted)

	w.node(status) // the next dump waits for the traces of this one to go
	w.askDump(&virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps", Phase: virtv1.MemoryDumpAssociating})
	w.dumps(virtv1.MemoryDumpAssociating)
	w.has(true, false)
	w.node()
	w.dumps(virtv1.MemoryDumpInProgress)
	w.has(true, true)

	w.askDump(&virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps", Phase: virtv1.MemoryDumpDissociating, Remove: true})
	w.node(status)
	w.dumps(virtv1.MemoryDumpDissociating)
	w.has(true, false)
	w.node()
	w.dumps("")
	w.has(false, false)
}

func memoryDumpFailed(t *testing.T, w *world) {
	dumped(t, w)
	w.dumps(virtv1.MemoryDumpInProgress)
	w.node(virtv1.VolumeStatus{Name: "dumps", Phase: virtv1.MemoryDumpVolumeFailed, Message: "no space", MemoryDumpVolume: &virtv1.DomainMemoryDumpInfo{}})
	if request := w.dumps(virtv1.MemoryDumpFailed); request.Message != "no space" {
		t.Errorf("got %+v", request)
	}
	w.noted("Memory dump failed")
	w.pass(&lagging.Client{})
	w.has(true, false)

	w.node()
	w.askDump(&virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps", Phase: virtv1.MemoryDumpAssociating})
	w.dumps(virtv1.MemoryDumpInProgress)
	vmi := w.vmi()
	vmi.Status.Phase = virtv1.Succeeded
	w.must(w.Update(t.Context(), vmi))
	if request := w.dumps(virtv1.MemoryDumpFailed); request.Message != dumpEndedVM {
		t.Errorf("got %+v", request)
	}
}
