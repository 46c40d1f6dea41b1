package volumemigration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/transfer"
)

var noon = metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// claim is one that is bound, unless it has no size.
func claim(name, size string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name + "-uid"), Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	if size != "" {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
	}
	return c
}

// facts are those of a copy from a to b that can begin.
func facts(t *testing.T) *Facts {
	t.Helper()
	vm := machine(t, 2, virtv1.UpdateVolumesStrategyMigration, "b", "d", Note{"root": {"a", 2}})
	moves, err := Moves(vm)
	if err != nil || len(moves) != 1 {
		t.Fatalf("the moves are %v, %v", moves, err)
	}
	return &Facts{
		VM: vm, Move: moves[0],
		Source: claim("a", "1Gi", corev1.PersistentVolumeFilesystem), Target: claim("b", "1Gi", corev1.PersistentVolumeFilesystem),
	}
}

// copier is the pod of f's copy, in a phase, whose container has ended with a message, "" when it has not.
func copier(t *testing.T, f *Facts, phase corev1.PodPhase, ended string) *corev1.Pod {
	t.Helper()
	pod, err := Pod(PodInput{VM: f.VM, Move: f.Move, Source: f.Source, Target: f.Target})
	if err != nil {
		t.Fatal(err)
	}
	pod.CreationTimestamp, pod.Status.Phase = noon, phase
	status := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: noon}}}
	if ended != "" {
		end := &corev1.ContainerStateTerminated{Message: ended, FinishedAt: metav1.NewTime(noon.Add(time.Minute))}
		if status.LastTerminationState.Terminated = end; phase == corev1.PodSucceeded {
			status.State = corev1.ContainerState{Terminated: end}
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return pod
}

// user is another's pod that has a claim, from noon on.
func user(claim string, readOnly bool) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "other", CreationTimestamp: noon},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
			Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "v", ReadOnly: readOnly}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	return pod
}

func filled(f *Facts, phase cdiv1.DataVolumePhase) {
	f.DataVolume = &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: phase}}
}

func TestACopyGoesOnByWhatThereIs(t *testing.T) {
	const tooSmall = `{"reason":"TooSmall","message":"the image's disk is 2 GiB"}`
	for name, c := range map[string]struct {
		change func(*testing.T, *Facts)
		act    Act
		reason string
		says   string
	}{
		"all is there":                {func(*testing.T, *Facts) {}, Copy, ReasonBegins, "volume root, from PVC a to PVC b"},
		"the VM runs":                 {func(_ *testing.T, f *Facts) { f.Running = true }, Wait, ReasonRunning, "has stopped"},
		"the source is missing":       {func(_ *testing.T, f *Facts) { f.Source = nil }, Help, ReasonSourceMissing, "PVC a, which has the disk, does not exist"},
		"the source is being deleted": {func(_ *testing.T, f *Facts) { f.Source.DeletionTimestamp = &noon }, Help, ReasonSourceMissing, "PVC a"},
		"the source is being deleted while it is copied": {func(t *testing.T, f *Facts) {
			f.Pods = []corev1.Pod{*copier(t, f, corev1.PodRunning, "")}
			f.Source.DeletionTimestamp = &noon
		}, Wait, ReasonCopying, ""},
		"the source has no volume":       {func(_ *testing.T, f *Facts) { f.Source = claim("a", "", "Block") }, Help, ReasonSourceUnbound, "change the volume back"},
		"the destination is missing":     {func(_ *testing.T, f *Facts) { f.Target = nil }, Wait, ReasonTargetMissing, "PVC b does not exist yet; create it"},
		"the destination is being ended": {func(_ *testing.T, f *Facts) { f.Target.DeletionTimestamp = &noon }, Wait, ReasonTargetMissing, "PVC b"},
		"the destination is lost":        {func(_ *testing.T, f *Facts) { f.Target.Status.Phase = corev1.ClaimLost }, Help, ReasonTargetMissing, "has lost its volume"},
		"the destination is read only": {func(_ *testing.T, f *Facts) {
			f.Target.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, Help, ReasonTargetUnfit, "can only be read"},
		"the destination waits for its first consumer": {func(_ *testing.T, f *Facts) { f.Target = claim("b", "", "Filesystem") }, Copy, ReasonBegins, ""},
		"a smaller device": {func(_ *testing.T, f *Facts) { f.Source = claim("a", "2Gi", corev1.PersistentVolumeBlock) }, Help, ReasonTooSmall, "PVC b has 1Gi, the disk of PVC a is 2Gi; expand it"},
		"a smaller claim of a file, whose disk may be small": {func(_ *testing.T, f *Facts) { f.Source = claim("a", "2Gi", corev1.PersistentVolumeFilesystem) }, Copy, ReasonBegins, ""},
		"a DataVolume that is done":                          {func(_ *testing.T, f *Facts) { filled(f, cdiv1.Succeeded) }, Copy, ReasonBegins, ""},
		"a DataVolume that fills it":                         {func(_ *testing.T, f *Facts) { filled(f, cdiv1.ImportInProgress) }, Wait, ReasonFilling, "is being prepared"},
		"a DataVolume that has said nothing":                 {func(_ *testing.T, f *Facts) { filled(f, "") }, Wait, ReasonFilling, "is being prepared"},
		"a DataVolume that failed":                           {func(_ *testing.T, f *Facts) { filled(f, cdiv1.Failed) }, Help, ReasonFilling, "DataVolume b has failed"},
		"a DataVolume that waits for a consumer": {func(_ *testing.T, f *Facts) {
			f.Target = claim("b", "", "Filesystem")
			filled(f, cdiv1.WaitForFirstConsumer)
		}, Bind, ReasonFilling, "waits for a consumer"},
		"a claim that has its consumer": {func(_ *testing.T, f *Facts) {
			f.Target = claim("b", "", "Filesystem")
			filled(f, cdiv1.WaitForFirstConsumer)
			f.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: BinderName("b")}}}
		}, Wait, ReasonFilling, "is being prepared"},
		"claims that no node can both have": {func(_ *testing.T, f *Facts) {
			f.Target = claim("b", "", "Filesystem")
			filled(f, cdiv1.WaitForFirstConsumer)
			f.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: BinderName("b")}, Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes"}},
			}}}
		}, Help, ReasonScheduling, "0/2 nodes"},
		"somebody writes to the source":  {func(_ *testing.T, f *Facts) { f.Pods = []corev1.Pod{user("a", false)} }, Wait, ReasonInUse, "pod other uses PVC a"},
		"somebody reads the source":      {func(_ *testing.T, f *Facts) { f.Pods = []corev1.Pod{user("a", true)} }, Copy, ReasonBegins, ""},
		"somebody reads the destination": {func(_ *testing.T, f *Facts) { f.Pods = []corev1.Pod{user("b", true)} }, Wait, ReasonInUse, "pod other uses PVC b"},
		"somebody came while it was copied": {func(t *testing.T, f *Facts) {
			f.Pods = []corev1.Pod{*copier(t, f, corev1.PodSucceeded, "{}"), user("a", false)}
		}, Stop, ReasonInUse, "pod other"},
		"the VM came while it was copied": {func(t *testing.T, f *Facts) {
			f.Running, f.Pods = true, []corev1.Pod{*copier(t, f, corev1.PodSucceeded, "{}")}
		}, Stop, ReasonRunning, ""},
		"it is copied in part": {func(t *testing.T, f *Facts) {
			f.Pods, f.Progress = []corev1.Pod{*copier(t, f, corev1.PodRunning, "")}, transfer.Progress{Done: 3, Total: 4}
		}, Wait, ReasonCopying, "pod migrate-b copies it since 2026-11-20T12:00:00Z, 75.00% so far"},
		"it is being copied": {func(t *testing.T, f *Facts) { f.Pods = []corev1.Pod{*copier(t, f, corev1.PodRunning, "")} }, Wait, ReasonCopying, "pod migrate-b copies it since 2026-11-20T12:00:00Z"},
		"it was copied": {func(t *testing.T, f *Facts) {
			f.Pods = []corev1.Pod{*copier(t, f, corev1.PodSucceeded, `{"digest":"x"}`)}
		}, Finish, ReasonCopied, ""},
		"it did not fit":      {func(t *testing.T, f *Facts) { f.Pods = []corev1.Pod{*copier(t, f, corev1.PodRunning, tooSmall)} }, Help, ReasonFailed, "TooSmall: the image's disk is 2 GiB; it is tried again from time to time: mend that, or change the volume back to PVC a"},
		"it broke off":        {func(t *testing.T, f *Facts) { f.Pods = []corev1.Pod{*copier(t, f, corev1.PodRunning, "no JSON")} }, Wait, ReasonRetrying, "it is tried again"},
		"its pod was evicted": {func(t *testing.T, f *Facts) { f.Pods = []corev1.Pod{*copier(t, f, corev1.PodFailed, "")} }, Stop, ReasonBegins, "begins anew"},
		"its pod is ending": {func(t *testing.T, f *Facts) {
			pod := copier(t, f, corev1.PodRunning, "")
			pod.DeletionTimestamp = &noon
			f.Pods = []corev1.Pod{*pod}
		}, Wait, ReasonBegins, "is being stopped"},
		"a copy from another claim of the name": {func(t *testing.T, f *Facts) {
			f.Pods = []corev1.Pod{*copier(t, f, corev1.PodSucceeded, "{}")}
			f.Source.UID = "another"
		}, Stop, ReasonBegins, ""},
		"an earlier copy": {func(t *testing.T, f *Facts) {
			f.Pods = []corev1.Pod{*copier(t, f, corev1.PodSucceeded, "{}")}
			f.Move.Generation++
		}, Stop, ReasonBegins, ""},
		"another VM's copy": {func(t *testing.T, f *Facts) {
			f.Pods = []corev1.Pod{*copier(t, f, corev1.PodRunning, "")}
			f.Pods[0].Labels[virtv1.CreatedByLabel] = "another"
		}, Wait, ReasonInUse, "is not this VirtualMachine's"},
		"it is written down": {func(t *testing.T, f *Facts) {
			f.Target.Annotations = copier(t, f, corev1.PodRunning, "").Annotations
			f.Source = nil // nobody needs it any more
		}, Done, ReasonCopied, ""},
		"another copy is written down": {func(t *testing.T, f *Facts) {
			f.Target.Annotations = copier(t, f, corev1.PodRunning, "").Annotations
			f.Move.Generation++
		}, Copy, ReasonBegins, ""},
		"somebody has written there": {func(_ *testing.T, f *Facts) { f.Target.Annotations[AnnotationRecord] = "done" }, Copy, ReasonBegins, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			c.change(t, f)
			got := Judge(*f)
			if got.Act != c.act || got.Reason != c.reason || !strings.Contains(got.Message, c.says) || got.Message == "" {
				t.Errorf("%d, %s: %s; want %d, %s: %s", got.Act, got.Reason, got.Message, c.act, c.reason, c.says)
			}
		})
	}
}

func TestACopyReadsItsSourceOnly(t *testing.T) {
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		f := facts(t)
		f.Source = claim("a", "1Gi", mode)
		pod := copier(t, f, corev1.PodPending, "")
		for _, volume := range pod.Spec.Volumes {
			from := volume.PersistentVolumeClaim
			if from.ClaimName != "a" {
				continue
			}
			mounts := pod.Spec.Containers[0].VolumeMounts
			if mode == corev1.PersistentVolumeBlock && !from.ReadOnly || mode != corev1.PersistentVolumeBlock && (mounts[len(mounts)-1].Name != volume.Name || !mounts[len(mounts)-1].ReadOnly) {
				t.Errorf("%s: the pod has %+v, %+v", mode, volume, mounts)
			}
		}
	}
}

func TestPodsHaveNamesThatFit(t *testing.T) {
	long := strings.Repeat("a", 63)
	other := long[:62] + "b"
	if len(PodName(long)) > maxPodName || PodName(long) == PodName(other) || PodName(long) == BinderName(long) || PodName("b") != "migrate-b" {
		t.Errorf("the names are %s, %s, %s", PodName(long), PodName(other), BinderName(long))
	}
}
