package cdiconfig

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/verbosity"
)

// Workload is what the CDI object says of the pods that fill disks, or look for them.
type Workload struct {
	// NodeSelector, Affinity and Tolerations are where they run.
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity    `json:"affinity,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	// PullPolicy and PullSecrets are for Slipway's own image.
	PullPolicy  corev1.PullPolicy             `json:"pullPolicy,omitempty"`
	PullSecrets []corev1.LocalObjectReference `json:"pullSecrets,omitempty"`
	// Verbosity is how much they log; nil for what their program does by itself.
	Verbosity *int32 `json:"verbosity,omitempty"`
}

// WorkloadOf reads cdi, which may be nil.
func WorkloadOf(cdi *cdiv1.CDI) Workload {
	w := Workload{PullPolicy: corev1.PullIfNotPresent}
	if cdi == nil {
		return w
	}
	asked := cdi.Spec.Workloads.DeepCopy()
	w.NodeSelector, w.Affinity, w.Tolerations = asked.NodeSelector, asked.Affinity, asked.Tolerations
	if cdi.Spec.ImagePullPolicy != "" {
		w.PullPolicy = cdi.Spec.ImagePullPolicy
	}
	if cdi.Spec.Config != nil {
		w.PullSecrets, w.Verbosity = slices.Clone(cdi.Spec.Config.ImagePullSecrets), cdi.Spec.Config.LogVerbosity
	}
	return w
}

// LogArgs are the arguments of a pod's program that say how much it logs; none where nothing is said.
func (w Workload) LogArgs() []string {
	if w.Verbosity == nil {
		return nil
	}
	return []string{fmt.Sprintf("--%s=%d", verbosity.Flag, *w.Verbosity)}
}

// Place puts a pod where w says. What pod asks for already holds too: its nodes must be of both, and its own labels of
// nodes come before those of w.
func (w Workload) Place(pod *corev1.PodSpec) {
	if len(w.NodeSelector) > 0 {
		selector := maps.Clone(w.NodeSelector)
		maps.Copy(selector, pod.NodeSelector)
		pod.NodeSelector = selector
	}
	pod.Tolerations = append(pod.Tolerations, w.Tolerations...)
	for _, secret := range w.PullSecrets {
		if !slices.Contains(pod.ImagePullSecrets, secret) {
			pod.ImagePullSecrets = append(pod.ImagePullSecrets, secret)
		}
	}
	if w.Affinity == nil {
		return
	}
	affinity := w.Affinity.DeepCopy()
	if own := pod.Affinity; own != nil && own.NodeAffinity != nil {
		affinity.NodeAffinity = bothNodes(own.NodeAffinity, affinity.NodeAffinity)
	}
	pod.Affinity = affinity
}

// bothNodes asks for nodes that own and other ask for. It takes what own has and may change other; one of them may be nil.
func bothNodes(own, other *corev1.NodeAffinity) *corev1.NodeAffinity {
	if other == nil {
		return own.DeepCopy()
	}
	other.PreferredDuringSchedulingIgnoredDuringExecution = append(slices.Clone(own.PreferredDuringSchedulingIgnoredDuringExecution), other.PreferredDuringSchedulingIgnoredDuringExecution...)
	mine, theirs := own.RequiredDuringSchedulingIgnoredDuringExecution, other.RequiredDuringSchedulingIgnoredDuringExecution
	switch {
	case mine == nil:
		return other
	case theirs == nil:
		other.RequiredDuringSchedulingIgnoredDuringExecution = mine.DeepCopy()
		return other
	}
	both := &corev1.NodeSelector{} // a node fits when it fits one of the terms, so each of one goes with each of the other
	for _, a := range mine.NodeSelectorTerms {
		for _, b := range theirs.NodeSelectorTerms {
			both.NodeSelectorTerms = append(both.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: append(slices.Clone(a.MatchExpressions), b.MatchExpressions...),
				MatchFields:      append(slices.Clone(a.MatchFields), b.MatchFields...),
			})
		}
	}
	other.RequiredDuringSchedulingIgnoredDuringExecution = both
	return other
}
