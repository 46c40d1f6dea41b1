package virtualmachineinstance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
)

// explainProcessor is what to add to the scheduler's message when vmi asks for what no node's processor can be.
func (r *Reconciler) explainProcessor(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (string, error) {
	asked := pod.ProcessorLabels(vmi)
	if len(asked) == 0 {
		return "", nil
	}
	nodes := &corev1.NodeList{}
	if err := r.List(ctx, nodes, client.MatchingLabels{virtv1.NodeSchedulable: "true"}); err != nil {
		return "", fmt.Errorf("listing the nodes with their processors: %w", err)
	}
	return lackingProcessor(asked, nodes.Items), nil
}

// lackingProcessor says which of the labels that are asked for no node has, in words for people.
func lackingProcessor(asked map[string]string, nodes []corev1.Node) string {
	var lacking []string
	for _, label := range slices.Sorted(maps.Keys(asked)) {
		if slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Labels[label] == asked[label] }) {
			continue
		}
		if model, isModel := strings.CutPrefix(label, virtv1.CPUModelLabel); isModel {
			lacking = append(lacking, "model "+model)
		} else {
			lacking = append(lacking, "feature "+strings.TrimPrefix(label, virtv1.CPUFeatureLabel))
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	return fmt.Sprintf(". No node's processor can have: %s; nodes have labels %s… and %s… of what theirs can, "+
		"but for models that spec.configuration.obsoleteCPUModels of the KubeVirt object names",
		strings.Join(lacking, ", "), virtv1.CPUModelLabel, virtv1.CPUFeatureLabel)
}
