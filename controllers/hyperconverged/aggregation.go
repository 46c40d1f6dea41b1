package hyperconverged

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// groupVMTemplateVerbs is the group of what is done with VirtualMachineTemplates. Who brings their definitions may serve it, too.
const groupVMTemplateVerbs = "subresources." + groupVMTemplate

// isAPIService says whether object hands an API group on to one of the components.
func isAPIService(object *unstructured.Unstructured) bool {
	return object.GetKind() == "APIService" && object.GroupVersionKind().Group == "apiregistration.k8s.io"
}

// premature says whether object is an APIService that nobody would answer for yet. Discovery of
// the whole cluster fails for such a group, and no namespace can be deleted meanwhile. Its
// server's Deployment, whose events bring the next pass, has the name of its Service. One that
// is there stays: a server that is being replaced comes back. So does another's.
func (r *Reconciler) premature(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	if !isAPIService(object) {
		return false, nil
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(object), live)
	if err == nil {
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading it: %w", err)
	}
	if others, err := r.ofOthers(ctx, object); err != nil || others {
		return others, err
	}
	server, _, err := unstructured.NestedString(object.Object, "spec", "service", "name")
	if err != nil {
		return false, fmt.Errorf("reading its service: %w", err)
	}
	deployment := &appsv1.Deployment{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: server}, deployment)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading Deployment %s: %w", server, err)
	}
	return ofDeployment(deployment).Missing != "", nil
}

// ofOthers says whether another's server answers for the group of object, which others may serve. The cache knows only what is ours.
func (r *Reconciler) ofOthers(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	group, _, err := unstructured.NestedString(object.Object, "spec", "group")
	if err != nil {
		return false, fmt.Errorf("reading its group: %w", err)
	}
	if group != groupVMTemplateVerbs {
		return false, nil
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err = r.Reader.Get(ctx, client.ObjectKeyFromObject(object), live)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading it: %w", err)
	}
	return !isOurs(live), nil
}
