package start

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func night(name string, ago time.Duration) cdiv1.DataVolume {
	return cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-ago))}}
}

func TestTheNewestVolumesAreKept(t *testing.T) {
	going := night("going", 0)
	going.DeletionTimestamp = &metav1.Time{}
	volumes := []cdiv1.DataVolume{night("c", 3*time.Hour), going, night("a", time.Hour), night("d", 4*time.Hour), night("b", 2*time.Hour)}
	for keep, want := range map[int][]string{1: {"b", "c", "d"}, 3: {"d"}, 4: nil, 9: nil} {
		var got []string
		for _, dv := range older(slices.Clone(volumes), keep) {
			got = append(got, dv.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("beyond %d: %v, want %v", keep, got, want)
		}
	}
}

func TestWhatNeedsAVolume(t *testing.T) {
	why := map[string]string{}
	claim := func(name string) corev1.Volume {
		return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	usedByPods(why, []corev1.Pod{
		{Spec: corev1.PodSpec{Volumes: []corev1.Volume{claim("runs"), {}}}},
		{Spec: corev1.PodSpec{Volumes: []corev1.Volume{claim("ran")}}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
	})
	usedByMachines(why, []virtv1.VirtualMachine{{}, {Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{Spec: virtv1.VirtualMachineInstanceSpec{
		Volumes: []virtv1.Volume{
			{VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "vm-dv"}}},
			{VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "vm-pvc"}}}},
		},
	}}}}})
	clone := func(of, namespace string, phase cdiv1.DataVolumePhase) cdiv1.DataVolume {
		return cdiv1.DataVolume{
			Spec:   cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: of, Namespace: namespace}}},
			Status: cdiv1.DataVolumeStatus{Phase: phase},
		}
	}
	pending := corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "claim-cloned"}}}
	bound := pending.DeepCopy()
	bound.Spec.DataSource.Name, bound.Status.Phase = "claim-done", corev1.ClaimBound
	cloned(why, "builds",
		[]cdiv1.DataVolume{{}, clone("cloned", "", cdiv1.CSICloneInProgress), clone("cloned-too", "builds", ""), clone("done", "", cdiv1.Succeeded), clone("elsewhere", "shop", "")},
		[]corev1.PersistentVolumeClaim{{}, pending, *bound})
	for _, name := range []string{"runs", "vm-dv", "vm-pvc", "cloned", "cloned-too", "claim-cloned"} {
		if why[name] == "" {
			t.Errorf("%s is not needed", name)
		}
		delete(why, name)
	}
	if len(why) > 0 {
		t.Errorf("needed besides: %v", why)
	}
}
