package datavolume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// newScope is the scope of a DataVolume that imports by HTTP into a claim that is bound.
func newScope(change func(*scope)) *scope {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "dv"}}
	s := &scope{
		dv: dv, plan: plan{kind: kindImport},
		class: &storagev1.StorageClass{VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
		claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "disk", OwnerReferences: []metav1.OwnerReference{owner(dv)}},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: new("fast")},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func withPod(phase corev1.PodPhase, state corev1.ContainerState, last string) func(*scope) {
	return func(s *scope) {
		s.pod = &corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: state, RestartCount: 2}}}}
		if last != "" {
			s.pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: last}
		}
		s.last = lastResult(s.pod)
	}
}

// withProgram has the pod of an image that the node pulls wait for the container that brings the importer.
func withProgram(program corev1.ContainerStatus) func(*scope) {
	return func(s *scope) {
		withPod(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}, "")(s)
		s.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{program}
	}
}

func TestPhasesAndConditions(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
	notFound, err := transfer.Failed(transfer.Errorf(transfer.NotFound, "no such file")).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change          func(*scope)
		phase           cdiv1.DataVolumePhase
		progress        cdiv1.DataVolumeProgress
		bound, ready    string // "Status/Reason"
		running         string
		runningContains string
	}{
		"no claim yet":    {func(s *scope) { s.claim = nil }, cdiv1.Pending, "N/A", "False/NotFound", "False/", "False/", ""},
		"a bound claim":   {nil, cdiv1.PVCBound, "N/A", "True/Bound", "False/", "False/", ""},
		"a pending claim": {func(s *scope) { s.claim.Status.Phase = corev1.ClaimPending; s.class.VolumeBindingMode = nil }, cdiv1.Pending, "N/A", "False/Pending", "False/", "False/", ""},
		"a claim that waits for its consumer": {
			func(s *scope) { s.claim.Status.Phase = corev1.ClaimPending }, cdiv1.WaitForFirstConsumer, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim whose populator waits for its consumer": {
			func(s *scope) {
				s.plan.kind = kindExternal
				ofPopulator(s.claim, "true")
			}, cdiv1.PendingPopulation, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim of a populator whose consumer has a node": {
			func(s *scope) {
				s.plan.kind = kindExternal
				ofPopulator(s.claim, "true")
				s.claim.Annotations[annotationSelectedNode] = "a"
			}, cdiv1.Pending, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim of a populator that is to be bound at once": {
			func(s *scope) {
				s.plan.kind = kindExternal
				ofPopulator(s.claim, "true")
				s.dv.Annotations = map[string]string{names.AnnotationBind: "true"}
			}, cdiv1.Pending, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim that its populator fills in place, and waits": {
			func(s *scope) {
				s.plan.kind = kindExternal
				ofPopulator(s.claim, "false")
			}, cdiv1.WaitForFirstConsumer, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim of which its populator has decided nothing": {
			func(s *scope) {
				s.plan.kind = kindExternal
				ofPopulator(s.claim, "true")
				s.claim.Annotations = nil
			}, cdiv1.WaitForFirstConsumer, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim whose consumer has a node": {
			func(s *scope) {
				s.claim.Status.Phase = corev1.ClaimPending
				s.claim.Annotations = map[string]string{annotationSelectedNode: "a"}
			}, cdiv1.Pending, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim to be bound at once": {
			func(s *scope) {
				s.claim.Status.Phase = corev1.ClaimPending
				s.dv.Annotations = map[string]string{names.AnnotationBind: "true"}
			}, cdiv1.Pending, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a claim that was lost": {func(s *scope) { s.claim.Status.Phase = corev1.ClaimLost }, cdiv1.Failed, "N/A", "False/ClaimLost", "False/Error", "False/", ""},
		"a pod without containers": {
			func(s *scope) { s.pod = &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}} },
			cdiv1.ImportScheduled, "N/A", "True/Bound", "False/", "False/ContainerCreating", "",
		},
		"a pod that fits nowhere": {
			func(s *scope) {
				s.pod = &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"},
				}}}
			}, cdiv1.ImportScheduled, "N/A", "True/Bound", "False/", "False/Unschedulable", "0/1 nodes",
		},
		"data that flows": {
			func(s *scope) {
				withPod(corev1.PodRunning, running, "")(s)
				s.progress = transfer.Progress{Done: 4534, Total: 10000}
			}, cdiv1.ImportInProgress, "45.34%", "True/Bound", "False/TransferRunning", "True/Pod is running", "",
		},
		"an image that the node cannot pull": {
			withPod(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image \"example.com/disk:1\": not found"}}, ""),
			cdiv1.ImportScheduled, "N/A", "True/Bound", "False/", "False/ImagePullBackOff", "example.com/disk:1\": not found",
		},
		"a program that begins to come into the image": {
			withProgram(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}),
			cdiv1.ImportScheduled, "N/A", "True/Bound", "False/", "False/PodInitializing", "",
		},
		"a program whose own image cannot be pulled": {
			withProgram(corev1.ContainerStatus{Name: "program", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no route"}}}),
			cdiv1.ImportScheduled, "N/A", "True/Bound", "False/", "False/ErrImagePull", "Container program: no route",
		},
		"a program that does not fit": {
			withProgram(corev1.ContainerStatus{
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no space left on device\n"}},
			}),
			cdiv1.ImportScheduled, "N/A", "True/Bound", "False/", "False/Error", "no space left on device; it is tried again",
		},
		"a program that came": {
			func(s *scope) {
				withPod(corev1.PodRunning, running, "")(s)
				s.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
			}, cdiv1.ImportInProgress, "N/A", "True/Bound", "False/TransferRunning", "True/Pod is running", "",
		},
		"an upload that was of no use": {
			func(s *scope) {
				withPod(corev1.PodRunning, running, "")(s)
				s.plan.kind, s.progress = kindUpload, transfer.Progress{Reason: transfer.InvalidImage, Message: "it ends too early"}
				s.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}, cdiv1.UploadReady, "N/A", "True/Bound", "False/", "False/Error", "InvalidImage: it ends too early; it is of no use",
		},
		"an import that is tried again": {
			withPod(corev1.PodRunning, waiting, string(notFound)), cdiv1.ImportInProgress, "N/A", "True/Bound", "False/", "False/Error", "NotFound: no such file",
		},
		"an importer that was killed": {
			withPod(corev1.PodRunning, waiting, "goroutine 1 [running]"), cdiv1.ImportInProgress, "N/A", "True/Bound", "False/", "False/Error", "its log says more",
		},
		"an import that failed for good": {
			func(s *scope) { s.failed = &obstacle{reasonError, "ChecksumMismatch: x"} }, cdiv1.Failed, "N/A", "True/Bound", "False/Error", "False/Error", "ChecksumMismatch",
		},
		"a filled claim": {
			func(s *scope) { s.claim.Annotations = map[string]string{AnnotationPodPhase: phaseSucceeded} },
			cdiv1.Succeeded, "100.0%", "True/Bound", "True/", "False/Completed", "Import Complete",
		},
		"another's filled claim": {
			func(s *scope) {
				s.claim.Annotations = map[string]string{AnnotationPodPhase: phaseSucceeded}
				s.claim.OwnerReferences = nil
				s.waiting = &obstacle{reasonExists, "exists"}
			}, cdiv1.Pending, "N/A", "False/ErrResourceExists", "False/", "False/ErrResourceExists", "exists",
		},
		"a clone under way": {
			func(s *scope) { s.plan.kind = kindClone; s.claim.Status.Phase = corev1.ClaimPending; s.class = nil },
			cdiv1.CSICloneInProgress, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a snapshot that is taken to clone it": {
			func(s *scope) {
				s.plan.kind, s.claim = kindClone, nil
				s.takes("Taking VolumeSnapshot ns/clone-dv", 0)
			},
			cdiv1.SnapshotForSmartCloneInProgress, "N/A", "False/NotFound", "False/", "False/CloneInProgress", "Taking",
		},
		"a clone of a snapshot under way": {
			func(s *scope) {
				s.plan.kind = kindClone
				s.claim.Status.Phase, s.class = corev1.ClaimPending, nil
				s.claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kindSnapshot, Name: "kept"}
			},
			cdiv1.CloneFromSnapshotSourceInProgress, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a copy that begins": {
			func(s *scope) { s.plan.kind = kindCopy }, cdiv1.CloneScheduled, "N/A", "True/Bound", "False/", "False/", "",
		},
		"a copy under way": {
			func(s *scope) {
				s.plan.kind = kindCopy
				withPod(corev1.PodRunning, running, "")(s)
				s.progress = transfer.Progress{Done: 1, Total: 4}
			}, cdiv1.CloneInProgress, "25.00%", "True/Bound", "False/TransferRunning", "True/Pod is running", "",
		},
		"a copy onto storage that waits for its consumer": {
			func(s *scope) { s.plan.kind = kindCopy; s.claim.Status.Phase = corev1.ClaimPending },
			cdiv1.WaitForFirstConsumer, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a copy that is made where its source is": {
			func(s *scope) {
				s.plan.kind, s.pinned = kindCopy, true
				s.claim.Status.Phase = corev1.ClaimPending
			}, cdiv1.CloneScheduled, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a copy of what is in use": {
			func(s *scope) {
				s.plan.kind = kindCopy
				s.cloning = &obstacle{reasonSourceInUse, "pod ns/vm using PersistentVolumeClaim base"}
			}, cdiv1.CloneScheduled, "N/A", "True/Bound", "False/", "False/CloneSourceInUse", "pod ns/vm using",
		},
		"a copy in another namespace": {
			func(s *scope) {
				s.plan.kind, s.claim = kindCopy, nil
				withPod(corev1.PodRunning, running, "")(s)
			}, cdiv1.CloneInProgress, "N/A", "False/NotFound", "False/TransferRunning", "True/Pod is running", "",
		},
		"a clone whose volume is on its way": {
			func(s *scope) {
				s.plan.kind, s.claim = kindClone, nil
				s.way.volume = &corev1.PersistentVolume{}
				s.cloning = &obstacle{reasonCloning, "Bringing the clone"}
			}, cdiv1.RebindInProgress, "N/A", "False/NotFound", "False/", "False/CloneInProgress", "Bringing",
		},
		"a copy whose volume is on its way": {
			func(s *scope) {
				s.plan.kind, s.claim, s.copied = kindClone, nil, true
				s.way.volume = &corev1.PersistentVolume{}
				s.cloning = &obstacle{reasonCloning, "Bringing the clone"}
			}, cdiv1.RebindInProgress, "N/A", "False/NotFound", "False/", "False/CloneInProgress", "Bringing",
		},
		"a clone whose volume is given to the claim": {
			func(s *scope) {
				s.plan.kind = kindClone
				s.claim.Status.Phase, s.claim.Spec.VolumeName = corev1.ClaimPending, "pv"
				s.claim.Annotations = map[string]string{annotationBroughtFrom: "other/base"}
			}, cdiv1.RebindInProgress, "N/A", "False/Pending", "False/", "False/", "",
		},
		"a clone whose volume has arrived": {
			func(s *scope) {
				s.plan.kind = kindClone
				s.claim.Spec.VolumeName = "pv"
				s.claim.Annotations = map[string]string{annotationBroughtFrom: "other/base"}
			}, cdiv1.CSICloneInProgress, "N/A", "True/Bound", "False/", "False/", "",
		},
		"a copy that is brought": {
			func(s *scope) {
				s.plan.kind, s.claim, s.copied = kindClone, nil, true
				s.cloning = &obstacle{reasonCloning, "Bringing the clone"}
			}, cdiv1.CloneInProgress, "N/A", "False/NotFound", "False/", "False/CloneInProgress", "Bringing",
		},
		"a copy that is whole": {
			func(s *scope) {
				s.plan.kind = kindCopy
				s.claim.Annotations = map[string]string{AnnotationPodPhase: phaseSucceeded}
			}, cdiv1.Succeeded, "100.0%", "True/Bound", "True/", "False/Completed", "Clone Complete",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := newStatus(newScope(c.change), time.Unix(1000, 0))
			if got.Phase != c.phase || got.Progress != c.progress {
				t.Errorf("phase %s, progress %s; want %s, %s", got.Phase, got.Progress, c.phase, c.progress)
			}
			for kind, want := range map[cdiv1.DataVolumeConditionType]string{cdiv1.DataVolumeBound: c.bound, cdiv1.DataVolumeReady: c.ready, cdiv1.DataVolumeRunning: c.running} {
				condition := condition(got.Conditions, kind)
				if have := string(condition.Status) + "/" + condition.Reason; have != want {
					t.Errorf("%s is %s, want %s", kind, have, want)
				}
			}
			if message := condition(got.Conditions, cdiv1.DataVolumeRunning).Message; !strings.Contains(message, c.runningContains) {
				t.Errorf("message %q lacks %q", message, c.runningContains)
			}
		})
	}
}

func TestTheSameStatusIsNotWrittenTwice(t *testing.T) {
	s := newScope(nil)
	first := newStatus(s, time.Unix(1000, 0))
	s.dv.Status = first
	s.dv.Status.Conditions[0], s.dv.Status.Conditions[2] = first.Conditions[2], first.Conditions[0]
	second := newStatus(s, time.Unix(2000, 0))
	if !equalStatus(second, s.dv.Status) {
		t.Errorf("%+v differs from %+v", second, s.dv.Status)
	}
	if got := second.Conditions[0].LastTransitionTime.Unix(); got != 1000 {
		t.Errorf("the time of a condition that did not change became %d", got)
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaimSpec{}
	block := &corev1.PersistentVolumeClaimSpec{VolumeMode: new(corev1.PersistentVolumeBlock)}
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}
	source := func(s cdiv1.DataVolumeSource) cdiv1.DataVolumeSpec { return cdiv1.DataVolumeSpec{PVC: pvc, Source: &s} }
	for want, spec := range map[string]cdiv1.DataVolumeSpec{
		"set one of them":               {Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}},
		"keep one of them":              {PVC: pvc, Storage: &cdiv1.StorageSpec{}},
		"spec.source.registry":          source(cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{}}),
		"both url and imageStream":      source(cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://a"), ImageStream: new("a"), PullMethod: new(cdiv1.RegistryPullNode)}}),
		"with pullMethod node only":     source(cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{ImageStream: new("a")}}),
		"use pod or node":               source(cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://a"), PullMethod: new(cdiv1.RegistryPullMethod("cluster"))}}),
		"is for pullMethod pod":         source(cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://a"), PullMethod: new(cdiv1.RegistryPullNode), CertConfigMap: new("a")}}),
		"spec.source.imageio":           source(cdiv1.DataVolumeSource{Imageio: &cdiv1.DataVolumeSourceImageIO{}}),
		"spec.source.vddk":              source(cdiv1.DataVolumeSource{VDDK: &cdiv1.DataVolumeSourceVDDK{}}),
		"names no source":               source(cdiv1.DataVolumeSource{}),
		"has no source":                 {PVC: pvc},
		"http, s3, gcs and upload only": {PVC: pvc, ContentType: cdiv1.DataVolumeArchive},
		"needs a file system":           {PVC: block, Source: http, ContentType: cdiv1.DataVolumeArchive},
		"spec.preallocation":            {PVC: pvc, Source: http, ContentType: cdiv1.DataVolumeArchive, Preallocation: new(true)},
		"spec.checkpoints":              {PVC: pvc, Checkpoints: []cdiv1.DataVolumeCheckpoint{{}}},
		"spec.sourceRef.kind":           {PVC: pvc, SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "Other"}},
	} {
		if _, refused := newPlan(&cdiv1.DataVolume{Spec: spec}); !strings.Contains(refused, want) {
			t.Errorf("got %q, want %q in it", refused, want)
		}
	}
}

// ofPopulator makes claim one that a VolumeImportSource fills, by another claim or, with use false, itself.
func ofPopulator(claim *corev1.PersistentVolumeClaim, use string) {
	claim.UID, claim.Status.Phase = "u", corev1.ClaimPending
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new(cdiv1.SchemeGroupVersion.Group), Kind: cdiv1.VolumeImportSourceRef, Name: "debian"}
	claim.Annotations = map[string]string{population.AnnotationUse: use, population.AnnotationFilledBy: population.PrimeName(claim)}
}
