package hyperconverged

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// planBundles adds tasks and pipelines for the namespaces that are asked for and exist.
// What is missing outside is waited for, and said; it keeps nothing else from coming up.
func (r *Reconciler) planBundles(ctx context.Context, s *scope) error {
	asked := s.hco.Spec.WorkloadSources.TektonNamespaces
	if len(asked) == 0 || len(r.Options.Bundles) == 0 {
		return nil
	}
	if _, err := r.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: "tekton.dev", Kind: "Task"}); err != nil {
		s.waiting = append(s.waiting, "Tekton is not installed in this cluster, and spec.workloadSources.tektonNamespaces asks for tasks; "+
			"install Tekton Pipelines or remove the field")
		return nil
	}
	var present []string
	for _, name := range asked {
		namespace := &metav1.PartialObjectMetadata{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, namespace)
		switch {
		case apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil:
			s.waiting = append(s.waiting, fmt.Sprintf("namespace %s of spec.workloadSources.tektonNamespaces does not exist", name))
		case err != nil:
			return fmt.Errorf("reading namespace %s: %w", name, err)
		default:
			present = append(present, name)
		}
	}
	for _, bundle := range r.Options.Bundles {
		objects, err := planBundle(bundle, present, r.Options.Values())
		if err != nil {
			return err
		}
		s.wanted = append(s.wanted, objects...)
	}
	return nil
}
