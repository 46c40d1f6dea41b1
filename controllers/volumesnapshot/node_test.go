package volumesnapshot

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTermsOfAVolumesNodesAreRead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"zone": "a", "rank": "7"}}}
	label := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	field := func(operator corev1.NodeSelectorOperator, value string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: operator, Values: []string{value}}}}
	}
	both := label("zone", corev1.NodeSelectorOpIn, "a")
	both.MatchFields = field(corev1.NodeSelectorOpIn, "node-2").MatchFields
	for name, tc := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  bool
	}{
		"a label in a list":              {[]corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpIn, "b", "a")}, true},
		"a label not in a list":          {[]corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpNotIn, "a")}, false},
		"a label that is there":          {[]corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpExists)}, true},
		"a label that is not there":      {[]corev1.NodeSelectorTerm{label("disk", corev1.NodeSelectorOpDoesNotExist)}, true},
		"a number above another":         {[]corev1.NodeSelectorTerm{label("rank", corev1.NodeSelectorOpGt, "6")}, true},
		"a number below another":         {[]corev1.NodeSelectorTerm{label("rank", corev1.NodeSelectorOpLt, "6")}, false},
		"its name":                       {[]corev1.NodeSelectorTerm{field(corev1.NodeSelectorOpIn, "node-1")}, true},
		"all names but its own":          {[]corev1.NodeSelectorTerm{field(corev1.NodeSelectorOpNotIn, "node-1")}, false},
		"label and name, of which one":   {[]corev1.NodeSelectorTerm{both}, false},
		"the second of two terms":        {[]corev1.NodeSelectorTerm{both, field(corev1.NodeSelectorOpIn, "node-1")}, true},
		"an empty term, which fits none": {[]corev1.NodeSelectorTerm{{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := selects(&corev1.NodeSelector{NodeSelectorTerms: tc.terms}, node)
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
	if _, err := selects(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpIn)}}, node); err == nil {
		t.Error("a list without values is no error")
	}
}
