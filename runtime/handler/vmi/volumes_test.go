package vmi

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// lateScope is a pass over a running VMI with the volumes, each on a claim of its name; its
// launcher pod has none.
func lateScope(disks []protocol.Disk, volumes ...string) *scope {
	vmi := &v1.VirtualMachineInstance{}
	for _, name := range volumes {
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: name})
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true}}})
	}
	return &scope{
		vmi: vmi, pod: &corev1.Pod{}, pluggable: true, claims: map[string]*corev1.PersistentVolumeClaim{},
		view: session.View{State: &protocol.State{Phase: protocol.PhaseRunning, Disks: disks}},
	}
}

func (s *scope) attached(name, claim string, released bool) *scope {
	pod := &corev1.Pod{}
	pod.Name, pod.UID = "hp-"+claim, types.UID(claim)
	pod.Annotations = map[string]string{names.AnnotationVolume: name}
	s.attachments = append(s.attachments, attachment{pod: pod, claim: claim, released: released})
	return s
}

func (s *scope) claimed(name string, phase corev1.PersistentVolumeClaimPhase, mode corev1.PersistentVolumeMode) *scope {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Status.Phase, claim.Spec.VolumeMode = phase, &mode
	s.claims[name] = claim
	return s
}

func TestStatusOfVolumesThatComeAndGo(t *testing.T) {
	has := []protocol.Disk{{Volume: "data", Target: "sda", Claim: "data"}}
	away := lateScope(nil).attached("data", "data", false)
	away.pluggable = false
	refused := lateScope(nil, "data")
	refused.plugErrors = map[string]string{"data": "no"}
	for name, c := range map[string]struct {
		scope *scope
		want  []string
	}{
		"no claim":                             {lateScope(nil, "data"), []string{"data Pending FailedPvcNotFound "}},
		"a claim that is not bound":            {lateScope(nil, "data").claimed("data", corev1.ClaimPending, corev1.PersistentVolumeFilesystem), []string{"data Pending PVCNotReady "}},
		"a block device":                       {lateScope(nil, "data").claimed("data", corev1.ClaimBound, corev1.PersistentVolumeBlock), []string{"data Bound PVCNotReady "}},
		"a bound claim":                        {lateScope(nil, "data").claimed("data", corev1.ClaimBound, corev1.PersistentVolumeFilesystem), []string{"data Bound PVCNotReady "}},
		"an attachment pod that starts":        {lateScope(nil, "data").attached("data", "data", false), []string{"data Bound SuccessfulCreate [hp-data]"}},
		"the guest has it":                     {lateScope(has, "data").attached("data", "data", false), []string{"data Ready VolumeReady [hp-data]"}},
		"its attachment pod is lost":           {lateScope(has, "data"), []string{"data Ready VolumeReady "}},
		"it is removed and the guest has it":   {lateScope(has).attached("data", "data", false), []string{"data Detaching Detaching [hp-data]"}},
		"it is removed and the guest let go":   {lateScope(nil).attached("data", "data", false), []string{"data UnMountedFromPod VolumeUnMountedFromPod [hp-data]"}},
		"nobody knows what the guest has":      {away, nil},
		"released stays released":              {lateScope(nil, "data").attached("data", "data", true).claimed("data", corev1.ClaimBound, corev1.PersistentVolumeFilesystem), []string{"data Bound PVCNotReady ", "data UnMountedFromPod VolumeUnMountedFromPod [hp-data]"}},
		"another claim waits for the first":    {lateScope([]protocol.Disk{{Volume: "data", Claim: "old"}}, "data").attached("data", "old", false).attached("data", "data", false), []string{"data Detaching Detaching [hp-old]"}},
		"why it failed":                        {refused, []string{"data Pending FailedAttach "}},
		"one from the start is as ever":        {lateScope([]protocol.Disk{{Volume: "data", Target: "vda"}}, "data"), []string{"data   "}},
		"one from the start that is to go":     {lateScope([]protocol.Disk{{Volume: "data", Target: "vda", Leaving: true}}), []string{"data Detaching Detaching "}},
		"asked to leave, and wanted meanwhile": {lateScope([]protocol.Disk{{Volume: "data", Claim: "data", Leaving: true}}, "data").attached("data", "data", false), []string{"data Detaching Detaching [hp-data]"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, status := range volumeStatus(c.scope) {
				pod := ""
				if status.HotplugVolume != nil {
					pod = "[" + status.HotplugVolume.AttachPodName + "]"
				}
				got = append(got, fmt.Sprintf("%s %s %s %s", status.Name, status.Phase, status.Reason, pod))
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
