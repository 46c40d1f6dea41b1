package stepcache

import (
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, filepath.Join("testdata", name+".yaml"), got)
}

func TestBuilders(t *testing.T) {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "builds", Name: "debian-1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"), VolumeMode: new(corev1.PersistentVolumeFilesystem),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4900Mi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: size},
	}
	dv := buildEntry(filling{
		key: mustKey(t, newStep(nil)), step: "virt-customize", digest: base, source: claim, now: noon,
		run: Run{Namespace: "builds", Name: "golden-customize", UID: "c0ffee"},
	})
	golden(t, "entry", dv)

	dv.Name, dv.UID, dv.CreationTimestamp = "step-1-x", "u", metav1.NewTime(noon)
	dv.Labels[LabelState], dv.Status.Phase = string(Ready), cdiv1.Succeeded
	entry, ok := newEntry(dv)
	if !ok || entry.Size != 5<<30 || entry.Class != "fast" || entry.Digest != base || !entry.Filled.Equal(noon) || entry.Run != "builds/golden-customize" {
		t.Errorf("read as %+v, %v", entry, ok)
	}
	wanted := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "builds", Name: "debian-2", Labels: map[string]string{"a": "b"}},
		Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://a/b"}},
			Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: size}},
		},
	}
	golden(t, "restored", Restored(wanted, &entry))

	host := &Host{Namespace: "builds", Name: "run-pod", Image: "registry.example.com/guestfs:v1", Program: "/usr/bin/slipway", Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "d00f"}, Spec: corev1.PodSpec{NodeName: "node-1", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}},
	}}
	golden(t, "worker-restores", buildWorker(host, &entry, Target{Claim: "debian-2"}))
	entry.Mode = corev1.PersistentVolumeBlock
	golden(t, "worker-checks-block", buildWorker(host, &entry, Target{}))
	golden(t, "worker-rewrites-block", buildWorker(host, &entry, Target{Claim: "debian-2", Block: true}))
}

func TestEntriesThatAreNone(t *testing.T) {
	good := buildEntry(filling{key: mustKey(t, newStep(nil)), digest: base, source: &corev1.PersistentVolumeClaim{}, now: noon})
	good.Labels[LabelState], good.Status.Phase = string(Ready), cdiv1.Succeeded
	for name, change := range map[string]func(*cdiv1.DataVolume){
		"no digest":           func(dv *cdiv1.DataVolume) { delete(dv.Annotations, AnnotationDigest) },
		"no key":              func(dv *cdiv1.DataVolume) { delete(dv.Annotations, AnnotationKey) },
		"another key's label": func(dv *cdiv1.DataVolume) { dv.Labels[LabelKey] = "0" },
		"an unknown state":    func(dv *cdiv1.DataVolume) { dv.Labels[LabelState] = "done" },
		"not cloned":          func(dv *cdiv1.DataVolume) { dv.Status.Phase = cdiv1.CSICloneInProgress },
	} {
		dv := good.DeepCopy()
		change(dv)
		all := Entries([]cdiv1.DataVolume{*dv, {}})
		if len(all) != 1 || all[0].State == Ready || !all[0].Abandoned {
			t.Errorf("%s: %+v", name, all)
		}
	}
	if all := Entries([]cdiv1.DataVolume{*good}); len(all) != 1 || all[0].State != Ready || all[0].Abandoned {
		t.Errorf("a good one: %+v", all)
	}
	if at := ReadTime(good, AnnotationUsed, time.Time{}); !at.Equal(noon) {
		t.Errorf("used at %v", at)
	}
	good.Annotations[AnnotationUsed] = "yesterday"
	if at := ReadTime(good, AnnotationUsed, noon); !at.Equal(noon) {
		t.Errorf("a time that cannot be read is %v", at)
	}
}
