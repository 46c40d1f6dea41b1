package hyperconverged

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// conflictError says that another installation of the same API is in the cluster. Waiting
// does not cure it, an event of what was found does.
type conflictError struct{ found []string }

// Error names what was found and what to do.
func (e *conflictError) Error() string {
	return fmt.Sprintf("another installation of KubeVirt or CDI is in this cluster: %s; remove it first, or use another cluster: "+
		"two installations would fight over the same objects", strings.Join(e.found, "; "))
}

// foreignOperators are labels of the operators that install the same API.
var foreignOperators = []client.MatchingLabels{
	{"kubevirt.io": "virt-operator"},
	{"operator.cdi.kubevirt.io": ""},
	{"name": "hyperconverged-cluster-operator"},
}

// refuseConflicts looks for another installation, before anything is written.
func (r *Reconciler) refuseConflicts(ctx context.Context, s *scope) error {
	found, err := foreignDefinitions(ctx, r.Client)
	if err != nil {
		return err
	}
	objects, err := r.foreignOperands(ctx)
	if err != nil {
		return err
	}
	deployments, err := r.foreignDeployments(ctx)
	if err != nil {
		return err
	}
	s.conflicts = append(append(found, objects...), deployments...)
	if len(s.conflicts) > 0 {
		return &conflictError{found: s.conflicts}
	}
	return nil
}

func (r *Reconciler) foreignOperands(ctx context.Context) ([]string, error) {
	own := map[client.ObjectKey]bool{
		{Namespace: r.Options.Namespace, Name: names.KubeVirtName}: true,
		{Name: names.CDIName}: true,
	}
	var foreign []string
	for _, kind := range []schema.GroupVersionKind{kubeVirtKind, cdiKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := r.Reader.List(ctx, list)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s objects: %w", kind.Kind, err)
		}
		for i := range list.Items {
			key := client.ObjectKeyFromObject(&list.Items[i])
			if !own[key] {
				foreign = append(foreign, kind.Kind+" "+strings.TrimPrefix(key.String(), "/"))
			}
		}
	}
	return foreign, nil
}

func (r *Reconciler) foreignDeployments(ctx context.Context) ([]string, error) {
	var foreign []string
	for _, label := range foreignOperators {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		if err := r.Reader.List(ctx, list, label); err != nil {
			return nil, fmt.Errorf("listing other operators: %w", err)
		}
		for i := range list.Items {
			if !isOurs(&list.Items[i]) {
				foreign = append(foreign, "Deployment "+client.ObjectKeyFromObject(&list.Items[i]).String())
			}
		}
	}
	return foreign, nil
}

var (
	kubeVirtKind = virtv1.KubeVirtGroupVersionKind
	cdiKind      = cdiv1.SchemeGroupVersion.WithKind("CDI")
)
