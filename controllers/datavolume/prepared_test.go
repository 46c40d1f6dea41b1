package datavolume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func preparedVolume(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	volume.Spec.StorageClassName, volume.Spec.AccessModes = "fast", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	if change != nil {
		change(volume)
	}
	return volume
}

func TestWhyAVolumeDoesNotFitItsClaim(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   string
	}{
		"it fits":       {},
		"another class": {change: func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" }, want: `storage class ""`},
		"a device":      {change: func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, want: "volume mode Block"},
		"too small":     {change: func(v *corev1.PersistentVolume) { v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("1Mi") }, want: "has 1Mi, and the claim asks for 1Gi"},
		"for readers alone": {change: func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, want: "no access mode ReadWriteOnce"},
		"another one is named": {change: func(v *corev1.PersistentVolume) { v.Name = "other" }, want: "names pv"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{}
			claim.Spec.StorageClassName, claim.Spec.AccessModes = new("fast"), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			claim.Spec.VolumeName = "pv"
			if got := misfit(preparedVolume(c.change), claim); !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhichClaimsADataVolumeTakesOver(t *testing.T) {
	for name, c := range map[string]struct {
		claim, dv map[string]string
		gate      bool
		want      bool
	}{
		"nothing is said":                         {},
		"the gate":                                {gate: true, want: true},
		"the gate, and not by this DataVolume":    {gate: true, dv: map[string]string{AnnotationAdopt: "false"}},
		"the DataVolume says so":                  {dv: map[string]string{AnnotationAdopt: "true"}, want: true},
		"the claim says so":                       {claim: map[string]string{AnnotationAdopt: "true"}, want: true},
		"the claim has the DataVolume's disk":     {claim: map[string]string{AnnotationPopulatedFor: "disk"}, want: true},
		"the claim has another DataVolume's disk": {claim: map[string]string{AnnotationPopulatedFor: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{adopts: c.gate, dv: &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: c.dv}}}
			s.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Annotations: c.claim}}
			if got := s.mayAdopt(); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestWhichDataVolumesGo(t *testing.T) {
	marked := map[string]string{AnnotationCollect: "true"}
	for name, c := range map[string]struct {
		ttl    *int32
		meta   metav1.ObjectMeta
		phase  cdiv1.DataVolumePhase
		wanted bool
	}{
		"no time is set":           {meta: metav1.ObjectMeta{Annotations: marked}, phase: cdiv1.Succeeded},
		"a negative time":          {ttl: new(int32(-1)), meta: metav1.ObjectMeta{Annotations: marked}, phase: cdiv1.Succeeded},
		"it is not marked":         {ttl: new(int32(0)), phase: cdiv1.Succeeded},
		"it is marked to stay":     {ttl: new(int32(0)), meta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationCollect: "false"}}, phase: cdiv1.Succeeded},
		"it has not succeeded":     {ttl: new(int32(0)), meta: metav1.ObjectMeta{Annotations: marked}, phase: cdiv1.ImportInProgress},
		"it is a DataImportCron's": {ttl: new(int32(0)), meta: metav1.ObjectMeta{Annotations: marked, Labels: map[string]string{labelImportCron: "debian"}}, phase: cdiv1.Succeeded},
		"it has succeeded":         {ttl: new(int32(0)), meta: metav1.ObjectMeta{Annotations: marked}, phase: cdiv1.Succeeded, wanted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{ttl: c.ttl, dv: &cdiv1.DataVolume{ObjectMeta: c.meta, Status: cdiv1.DataVolumeStatus{Phase: c.phase}}}
			if _, got := s.collectable(); got != c.wanted {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestAClaimIsInheritedByTheOwners(t *testing.T) {
	vm, dv := metav1.OwnerReference{Kind: "VirtualMachine", Name: "vm", UID: "1"}, &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", UID: "2"}}
	dv.OwnerReferences = []metav1.OwnerReference{vm}
	for name, have := range map[string][]metav1.OwnerReference{"of the DataVolume alone": {owner(dv)}, "of its owner, too": {vm, owner(dv)}} {
		if got := inherited(have, dv); len(got) != 1 || got[0].UID != "1" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
