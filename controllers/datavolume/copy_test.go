package datavolume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
)

// withClaim is a pod that has the claim base as change says.
func withClaim(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "user"}, Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "base"}}},
		},
		Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "cache"}}}, {VolumeMounts: []corev1.VolumeMount{{Name: "disk"}}}},
	}}
	if change != nil {
		change(pod)
	}
	return pod
}

func TestWhoMayWriteToASource(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"one that has it mounted":      {nil, true},
		"one that has it mounted once": {func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, false},
		"one that reads it":            {func(p *corev1.Pod) { p.Spec.Containers[1].VolumeMounts[0].ReadOnly = true }, false},
		"one that may only read it":    {func(p *corev1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ReadOnly = true }, false},
		"one that has another":         {func(p *corev1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "other" }, false},
		"one that has the device": {func(p *corev1.Pod) {
			p.Spec.Containers[1].VolumeMounts, p.Spec.Containers[1].VolumeDevices = nil, []corev1.VolumeDevice{{Name: "disk"}}
		}, true},
		"one that begins with it": {func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[1:], p.Spec.Containers[:1]
		}, true},
	} {
		if got := mayWrite(withClaim(c.change), "base"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for access, want := range map[corev1.PersistentVolumeAccessMode]bool{corev1.ReadWriteOnce: false, corev1.ReadOnlyMany: true} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
		source := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{access}}}
		addCopySource(source, pod, &pod.Spec.Containers[0])
		if pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly != want {
			t.Errorf("a claim of mode %s is mounted as %+v", access, pod.Spec.Volumes[0])
		}
	}
	for name, from := range map[string]corev1.PersistentVolumeMode{"a device": corev1.PersistentVolumeBlock, "a file": corev1.PersistentVolumeFilesystem} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
		source := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "base"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: new(from)}}
		addCopySource(source, pod, &pod.Spec.Containers[0])
		if !has(pod, "base") || mayWrite(pod, "base") {
			t.Errorf("a pod that copies %s may write to it: %+v", name, pod.Spec)
		}
	}
}

func TestWhatWasWrittenDuringACopyCounts(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }
	pod := func(created, ended int64) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(created)}}
		if ended > 0 {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(ended)}}},
				{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(created)}}},
			}
		}
		return p
	}
	for name, c := range map[string]struct {
		user, copier *corev1.Pod
		want         bool
	}{
		"before any copy, it is there":       {pod(10, 0), nil, true},
		"before any copy, it has ended":      {pod(10, 20), nil, false},
		"it ended before":                    {pod(10, 20), pod(30, 0), false},
		"it ended as the copy began":         {pod(10, 30), pod(30, 0), false},
		"it ended during the copy":           {pod(10, 31), pod(30, 0), true},
		"it came and went during the copy":   {pod(31, 32), pod(30, 40), true},
		"it came during the copy":            {pod(31, 0), pod(30, 40), true},
		"it came after the copy":             {pod(41, 0), pod(30, 40), false},
		"nobody knows when it ended, before": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, pod(30, 40), false},
	} {
		if got := overlaps(c.user, c.copier); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestCopiesAreToldOfTheirSourcesUsers(t *testing.T) {
	all := &copies{}
	a, b := types.NamespacedName{Namespace: "ns", Name: "a"}, types.NamespacedName{Namespace: "team", Name: "b"}
	all.begin(a, types.NamespacedName{Namespace: "ns", Name: "base"})
	all.begin(b, types.NamespacedName{Namespace: "images", Name: "base"})
	if got := all.under(t.Context(), withClaim(nil)); len(got) != 1 || got[0].NamespacedName != a {
		t.Errorf("told are %v", got)
	}
	all.end(a)
	if got := all.under(t.Context(), withClaim(nil)); len(got) > 0 {
		t.Errorf("told are %v after the end", got)
	}
}

// Only a claim of the DataVolume's own namespace is given to a pod there, whatever a claim's annotation says.
func TestWhatAClaimSaysItIsCopiedFrom(t *testing.T) {
	for mark, want := range map[string]bool{
		"": false, "base": false, "ns/base": true, "images/base": false, "volumesnapshots/ns/base": false, "ns/disk": false,
	} {
		s := newScope(func(s *scope) {
			s.plan.kind = kindClone
			s.claim.Namespace, s.claim.Annotations = "ns", map[string]string{AnnotationCopiedFrom: mark}
		})
		if got := s.copySource(); (got != nil) != want {
			t.Errorf("%q is taken for %v", mark, got)
		}
	}
}

// Nothing of a user's comes into another namespace but the size of the disk.
func TestBuildCopier(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "dv", Labels: map[string]string{"mine": "yes"}}, Spec: cdiv1.DataVolumeSpec{
		ServiceAccountName: "mine", PriorityClassName: "mine", Storage: &cdiv1.StorageSpec{}, Preallocation: new(true),
	}}
	source := &origin{Source: clonesource.Source{Claim: types.NamespacedName{Namespace: "images", Name: "base"}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", Labels: dv.Labels, Annotations: copyNotes(source)}}
	there := buildThere(dv, source, claim)
	if there.Namespace != "images" || there.Name != "clone-dv" || there.Spec.DataSource != nil || !isCopy(there) || there.Labels["mine"] != "" {
		t.Errorf("the claim in the source's namespace is %+v", there)
	}
	there.UID = "there"
	from := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "base", Namespace: "images"}}
	pod := buildCopier(dv, there, podInput{CopyFrom: from})
	if pod.Namespace != "images" || pod.Spec.ServiceAccountName != "" || pod.Spec.PriorityClassName != "" || pod.Labels["mine"] != "" || pod.OwnerReferences[0].UID != "there" {
		t.Errorf("the pod in the source's namespace is %+v", pod)
	}
	if got := travellersOf(t.Context(), pod); len(got) != 1 || got[0].NamespacedName != client.ObjectKeyFromObject(dv) {
		t.Errorf("it is the business of %v", got)
	}
	if args := pod.Spec.Containers[0].Args; args[0] != "--size=0" || args[len(args)-1] != "--copy-from=/source" {
		t.Errorf("it is told %v", args)
	}
}
