package namespace

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyTheEndOfTheNamespaceCounts(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("not allowed"))
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("the namespace ends"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                          {nil, false},
		"another error":                     {errors.New("no"), false},
		"a refusal for another reason":      {refused, false},
		"a namespace that is being deleted": {terminating, true},
		"the same, wrapped":                 {fmt.Errorf("creating: %w", terminating), true},
		"a namespace that is gone":          {fmt.Errorf("creating: %w", apierrors.NewNotFound(corev1.Resource("namespaces"), "ns")), true},
		"another thing that is gone":        {apierrors.NewNotFound(corev1.Resource("pods"), "p"), false},
	} {
		if got := Ending(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
