package hyperconverged

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
)

// planBundles adds tasks and pipelines for the namespaces that are asked for and exist.
// What is missing outside is waited for, and said; it keeps nothing else from coming up.
func (r *Reconciler) planBundles(ctx context.Context, s *scope) error {
	if s.paused {
		return nil
	}
	asked := map[string][]string{}
	var all []string
	for _, bundle := range r.Options.Bundles {
		asked[bundle.Name] = namespacesOf(s.settings, bundle.Name, r.Options.Namespace)
		all = append(all, asked[bundle.Name]...)
	}
	if len(all) == 0 {
		return nil
	}
	if _, err := r.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: "tekton.dev", Kind: "Task"}); err != nil {
		s.waiting = append(s.waiting, "Tekton is not installed in this cluster, and SSP "+sspv1beta3.Name+" asks for tasks; "+
			"install Tekton Pipelines, or ask for none in spec.workloadSources of HyperConverged")
		return nil
	}
	present, err := r.presentNamespaces(ctx, s, all)
	if err != nil {
		return err
	}
	for _, bundle := range r.Options.Bundles {
		missing := func(name string) bool { return !slices.Contains(present, name) }
		objects, err := planBundle(bundle, slices.DeleteFunc(asked[bundle.Name], missing), r.Options.Values())
		if err != nil {
			return err
		}
		s.wanted = append(s.wanted, objects...)
	}
	return nil
}

// presentNamespaces returns those of the namespaces that exist, and notes what is waited for.
func (r *Reconciler) presentNamespaces(ctx context.Context, s *scope, asked []string) ([]string, error) {
	slices.Sort(asked)
	var present []string
	for _, name := range slices.Compact(asked) {
		state, err := r.namespaceState(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case state != namespaceThere:
			s.waiting = append(s.waiting, fmt.Sprintf("namespace %s, which gets tasks or pipelines, does not exist", name))
		default:
			present = append(present, name)
		}
	}
	return present, nil
}
