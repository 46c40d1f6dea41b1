package cdiconfig

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func nodes(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func term(keys ...string) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for _, key := range keys {
		t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
	}
	return t
}

func TestAPodIsWhereBothWantIt(t *testing.T) {
	taint := corev1.Toleration{Key: "storage", Operator: corev1.TolerationOpExists}
	secret := corev1.LocalObjectReference{Name: "pull"}
	for name, c := range map[string]struct {
		workload  Workload
		pod, want corev1.PodSpec
	}{
		"nothing is said": {},
		"labels, taints and Secrets add up": {
			workload: Workload{NodeSelector: map[string]string{"a": "1", "b": "1"}, Tolerations: []corev1.Toleration{taint}, PullSecrets: []corev1.LocalObjectReference{secret}},
			pod:      corev1.PodSpec{NodeSelector: map[string]string{"b": "2"}, ImagePullSecrets: []corev1.LocalObjectReference{secret}},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"a": "1", "b": "2"}, Tolerations: []corev1.Toleration{taint}, ImagePullSecrets: []corev1.LocalObjectReference{secret}},
		},
		"the pod asks for no nodes": {
			workload: Workload{Affinity: nodes(term("w"))}, want: corev1.PodSpec{Affinity: nodes(term("w"))},
		},
		"the pod alone asks for nodes": {
			workload: Workload{Affinity: &corev1.Affinity{}}, pod: corev1.PodSpec{Affinity: nodes(term("p"))}, want: corev1.PodSpec{Affinity: nodes(term("p"))},
		},
		"both ask for nodes": {
			workload: Workload{Affinity: nodes(term("w"), term("x"))}, pod: corev1.PodSpec{Affinity: nodes(term("p"), term("q"))},
			want: corev1.PodSpec{Affinity: nodes(term("p", "w"), term("p", "x"), term("q", "w"), term("q", "x"))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := c.workload.Affinity.DeepCopy()
			c.workload.Place(&c.pod)
			if !reflect.DeepEqual(c.pod, c.want) {
				t.Errorf("got %+v, want %+v", c.pod, c.want)
			}
			if !reflect.DeepEqual(c.workload.Affinity, asked) {
				t.Error("what the CDI object says was changed")
			}
		})
	}
}

func TestWhatTheCDIObjectSaysOfPods(t *testing.T) {
	if got := WorkloadOf(nil); got.PullPolicy != corev1.PullIfNotPresent {
		t.Errorf("without a CDI object: %+v", got)
	}
	cdi := &cdiv1.CDI{}
	cdi.Spec.ImagePullPolicy = corev1.PullAlways
	cdi.Spec.Workloads.NodeSelector = map[string]string{"disks": ""}
	cdi.Spec.Config = &cdiv1.CDIConfigSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
	want := Workload{NodeSelector: map[string]string{"disks": ""}, PullPolicy: corev1.PullAlways, PullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
	if got := WorkloadOf(cdi); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
