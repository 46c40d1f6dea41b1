package dataimportcron

import (
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/imageversion"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestNewDataVolume(t *testing.T) {
	cron := ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://example.com/disk.qcow2"})
	cron.Namespace, cron.Name, cron.UID = "images", "debian", "uid"
	cron.Labels = map[string]string{"instancetype.kubevirt.io/default-preference": "debian", "team": "a"}
	cron.Annotations = map[string]string{annotationRetainPod: "true"}
	cron.Spec.ManagedDataSource = "debian-12"
	cron.Spec.Template.Labels = map[string]string{"own": "b"}
	dv, err := newDataVolume(cron, newest{digest: someDigest})
	if err != nil {
		t.Fatal(err)
	}
	if dv.Name != "debian-12-0123456789ab" || dv.Namespace != "images" || len(dv.OwnerReferences) != 0 {
		t.Errorf("it is %+v", dv.ObjectMeta)
	}
	for name, want := range map[string]string{
		LabelCron: "debian", LabelCleanup: "", "instancetype.kubevirt.io/default-preference": "debian", "team": "", "own": "b",
	} {
		if dv.Labels[name] != want {
			t.Errorf("label %s is %q, want %q", name, dv.Labels[name], want)
		}
	}
	if dv.Annotations["cdi.kubevirt.io/storage.bind.immediate.requested"] != "true" || dv.Annotations[annotationRetainPod] != "true" {
		t.Errorf("annotations are %v", dv.Annotations)
	}
	cron.Spec.RetentionPolicy = new(cdiv1.DataImportCronRetainNone)
	if dv, err = newDataVolume(cron, newest{digest: someDigest}); err != nil || dv.Labels[LabelCleanup] != "true" || len(dv.OwnerReferences) != 1 || dv.OwnerReferences[0].UID != "uid" {
		t.Errorf("one that goes with its DataImportCron is %+v, %v", dv, err)
	}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://example.com/disk:12")}}
	if dv, err = newDataVolume(cron, newest{digest: someDigest}); err != nil || *dv.Spec.Source.Registry.URL != "docker://example.com/disk@"+someDigest {
		t.Errorf("one of a registry is %+v, %v", dv.Spec.Source.Registry, err)
	}
	if *cron.Spec.Template.Spec.Source.Registry.URL != "docker://example.com/disk:12" {
		t.Error("the template was changed")
	}
	for _, digest := range []string{"", "sha256:", "sha256:0123", "md5:0123456789abcdef"} {
		if _, err := newDataVolume(cron, newest{digest: digest}); err == nil || !strings.Contains(err.Error(), AnnotationDesired) {
			t.Errorf("%q: %v", digest, err)
		}
	}
}

func TestSuperfluous(t *testing.T) {
	meta := func(name, used string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: types.UID(name + used), Annotations: map[string]string{AnnotationLastUse: used}}
	}
	claim := func(name, used string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta(name, used)}
	}
	snapshot := func(name, used string) *snapshotv1.VolumeSnapshot {
		return &snapshotv1.VolumeSnapshot{ObjectMeta: meta(name, used)}
	}
	gone := claim("gone", "2026-01-03T00:00:00Z")
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	now := claim("now", "2026-01-04T00:00:00Z")
	all := []client.Object{
		snapshot("second", "2026-01-02T00:00:00Z"), now, snapshot("now", ""),
		claim("never", ""), snapshot("third", "2026-01-03T00:00:00.5Z"), claim("first", "2026-01-01T00:00:00Z"), gone, claim("next", ""),
	}
	for keep, want := range map[int][]string{
		0: {"now", "third", "second", "first", "never"}, 1: {"now", "third", "second", "first", "never"},
		2: {"now", "second", "first", "never"}, 4: {"now", "never"}, 9: {"now"},
	} {
		var got []string
		for _, o := range superfluous(all, now, "next", keep) {
			if o.GetUID() == now.UID {
				t.Errorf("of %d to keep goes the current one", keep)
			}
			got = append(got, o.GetName())
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d to keep go %v, want %v", keep, got, want)
		}
	}
}

func TestAClaimBesideItsSnapshotIsNotSuperfluous(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "now"}
	now, claim := &snapshotv1.VolumeSnapshot{ObjectMeta: meta}, &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	now.UID, claim.UID = "snapshot", "claim"
	if gone := superfluous([]client.Object{claim, now}, now, "", 1); len(gone) > 0 {
		t.Errorf("what goes is %v", gone) // it may be needed yet: see releaseClaim
	}
}

func TestAnOlderImportIsKeptOnce(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "old"}
	for isReady, want := range map[bool]int{true: 1, false: 0} {
		claim, snapshot := &corev1.PersistentVolumeClaim{ObjectMeta: meta}, &snapshotv1.VolumeSnapshot{ObjectMeta: meta}
		snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: &isReady}
		now := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "now", UID: "now"}}
		gone := superfluous([]client.Object{claim, snapshot, now}, now, "", 3)
		if len(gone) != want || want > 0 && gone[0] != client.Object(claim) {
			t.Errorf("beside a snapshot that is ready: %t goes %v", isReady, gone)
		}
	}
}

func TestConditions(t *testing.T) {
	filled := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	in := func(phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		return &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: phase}}
	}
	current := &cdiv1.ImportStatus{DataVolumeName: "a", Digest: someDigest}
	unkept := scope{newest: newest{digest: someDigest}, current: current, dv: in(cdiv1.Succeeded), claim: filled, format: cdiv1.DataImportCronSourceFormatSnapshot}
	refused := unkept
	refused.unkept = "no class"
	for name, c := range map[string]struct {
		scope scope
		want  string // Progressing, UpToDate: their reasons
	}{
		"a new one":               {scope{}, "NoImport False, NoDigest False"},
		"a server that is away":   {scope{unknown: "away"}, "NoImport False, NoDigest False"},
		"another's DataSource":    {scope{rival: "other"}, "NoImport False, ErrDataSourceAlreadyManaged False"},
		"an image to import":      {scope{newest: newest{digest: someDigest}}, "NoImport False, Outdated False"},
		"an import that waits":    {scope{newest: newest{digest: someDigest}, current: current, dv: in(cdiv1.Pending)}, "Pending False, ImportProgressing False"},
		"an import that begins":   {scope{newest: newest{digest: someDigest}, current: current, dv: in(cdiv1.ImportScheduled)}, "ImportScheduled False, ImportProgressing False"},
		"an import":               {scope{newest: newest{digest: someDigest}, current: current, dv: in(cdiv1.ImportInProgress)}, "ImportProgressing True, ImportProgressing False"},
		"an import that failed":   {scope{newest: newest{digest: someDigest}, current: current, dv: in(cdiv1.Failed)}, "Failed False, ImportFailed False"},
		"a name that is taken":    {scope{newest: newest{digest: someDigest}, taken: "it is taken"}, "NoImport False, ErrResourceExists False"},
		"an image":                {scope{newest: newest{digest: someDigest}, current: current, dv: in(cdiv1.Succeeded), claim: filled}, "NoImport False, UpToDate True"},
		"no snapshot of it yet":   {unkept, "ImportProgressing True, ImportProgressing False"},
		"no snapshot to be had":   {refused, "ImportProgressing False, SnapshotNotReady False"},
		"a snapshot":              {scope{newest: newest{digest: someDigest}, current: current, snapshot: readySnapshot("a")}, "NoImport False, UpToDate True"},
		"an image, and a new one": {scope{newest: newest{digest: imageversion.Digest("new")}, current: current, dv: in(cdiv1.Succeeded), claim: filled}, "NoImport False, Outdated False"},
	} {
		c.scope.cron = &cdiv1.DataImportCron{Spec: cdiv1.DataImportCronSpec{Schedule: "@daily"}}
		var got []string
		for _, condition := range newStatus(&c.scope, metav1.Now()).Conditions {
			got = append(got, condition.Reason+" "+string(condition.Status))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %s, want %s", name, strings.Join(got, ", "), c.want)
		}
	}
}

func TestWhatHindersAnImportIsTold(t *testing.T) {
	for reason, hinders := range map[string]bool{
		"Error": true, "ImagePullBackOff": true, "ErrImagePull": true, "InvalidImageName": true, "CreateContainerError": true,
		"ContainerCreating": false, "PodInitializing": false, "Unschedulable": false, "": false,
	} {
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		dv.Status.Phase = cdiv1.ImportScheduled
		dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: reason, Message: "why"}}
		if got := erroneous(dv); got != hinders {
			t.Errorf("an import with reason %q is erroneous: %t", reason, got)
		}
		if got := hindrance(dv); (got == "; DataVolume a: why") != hinders {
			t.Errorf("of one with reason %q is told %q", reason, got)
		}
		dv.Status.Conditions[0].Status = corev1.ConditionTrue
		if erroneous(dv) {
			t.Errorf("one that runs, with reason %q, is erroneous", reason)
		}
	}
}
