package metrics

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/metric"
)

// labelsConfig is the ConfigMap that says which labels of VMs are told, with its keys: lists with
// commas between. allowAll allows all.
const (
	labelsConfig = "kubevirt-vm-labels-config"
	keyAllowed   = "allowlist"
	keyIgnored   = "ignorelist"
	allowAll     = "*"
)

var vmLabels = metric.Metric{
	Name: "kubevirt_vm_labels", Kind: metric.Gauge, Labels: []string{"name", "namespace"},
	Help: "Labels of a VM and its template, each as `label_` and its name with underscores for what Prometheus does not take; always 1.",
}

// labelRules say which labels are told; without allowed all are.
type labelRules struct {
	allowed, ignored []string
	none             bool // the list of those that are allowed is there, and empty
}

// readLabelRules reads them past the cache, for ConfigMaps are many.
func readLabelRules(ctx context.Context, live client.Reader, namespace string) (labelRules, error) {
	config := &corev1.ConfigMap{}
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: labelsConfig}, config)
	if client.IgnoreNotFound(err) != nil {
		return labelRules{}, fmt.Errorf("reading which labels are told: %w", err)
	}
	return labelRulesOf(config.Data), nil
}

func labelRulesOf(data map[string]string) labelRules {
	allowed, limited := data[keyAllowed]
	rules := labelRules{allowed: items(allowed), ignored: items(data[keyIgnored])}
	rules.none = limited && len(rules.allowed) == 0
	return rules
}

func items(list string) []string {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func (r labelRules) tells(name string) bool {
	if r.none || slices.Contains(r.ignored, name) {
		return false
	}
	return len(r.allowed) == 0 || slices.Contains(r.allowed, allowAll) || slices.Contains(r.allowed, name)
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9_]`)

// labelsOf are the labels of a VM that are told, those of its template before its own. Of two that would have the same name the first is.
func (r labelRules) labelsOf(vm *virtv1.VirtualMachine) map[string]string {
	all := maps.Clone(vm.Labels)
	if all == nil {
		all = map[string]string{}
	}
	if vm.Spec.Template != nil {
		maps.Copy(all, vm.Spec.Template.ObjectMeta.Labels)
	}
	told := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		plain := notInLabels.ReplaceAllString(name, "_")
		if plain[0] >= '0' && plain[0] <= '9' {
			plain = "_" + plain
		}
		if _, taken := told["label_"+plain]; !taken && r.tells(name) {
			told["label_"+plain] = all[name]
		}
	}
	return told
}
