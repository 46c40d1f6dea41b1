package hyperconverged

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
)

// prunable are the kinds that components and bundles are made of, in the order in which
// they are removed: what answers requests before those who serve it, rights last.
var prunable = []schema.GroupVersionKind{
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	{Group: groupMonitoring, Version: "v1", Kind: "PrometheusRule"},
	{Group: groupMonitoring, Version: "v1", Kind: "ServiceMonitor"},
	{Group: groupPopulators, Version: "v1beta1", Kind: "VolumePopulator"},
	{Group: "tekton.dev", Version: "v1", Kind: "Pipeline"},
	{Group: "tekton.dev", Version: "v1", Kind: "Task"},
	{Group: "template.openshift.io", Version: "v1", Kind: "Template"},
	instancetypeKind,
	preferenceKind,
	cronKind,
	{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
}

// nameWanted names the set of wanted objects. One that is not that of the last prune makes it forgotten:
// should this pass fail half way, what it made is looked for when it is no longer wanted.
func (r *Reconciler) nameWanted(_ context.Context, s *scope) error {
	s.fingerprint = fmt.Sprintf("%s paused %t unplanned %t", fingerprintOf(slices.Concat(s.wanted, s.crons)), s.paused, s.unplanned != nil)
	if r.pruned != s.fingerprint {
		r.pruned = ""
	}
	return nil
}

// prune deletes what the operator once installed and no longer wants. It asks the API
// server itself, once for each new set of wanted objects.
func (r *Reconciler) prune(ctx context.Context, s *scope) error {
	if r.pruned == s.fingerprint {
		return nil
	}
	if err := r.pruneExcept(ctx, prunable, r.kept(s)); err != nil {
		return err
	}
	r.pruned = s.fingerprint
	return nil
}

// kept says what stays of what the operator once installed: what is wanted, and that of which it is not known.
func (r *Reconciler) kept(s *scope) func(client.Object) bool {
	wanted := identities(slices.Concat(s.wanted, s.crons))
	return func(object client.Object) bool {
		return wanted[identify(object)] || s.paused && r.isBundled(object) ||
			s.unplanned != nil && object.GetLabels()[LabelComponent] == components.BootSources
	}
}

// pruneExcept deletes the installed objects of kinds that are not kept.
func (r *Reconciler) pruneExcept(ctx context.Context, kinds []schema.GroupVersionKind, kept func(client.Object) bool) error {
	var problems *multierror.Error
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := r.Reader.List(ctx, list, client.HasLabels{LabelComponent})
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // the cluster does not serve it, or no more, so there is none
		}
		if err != nil {
			problems = multierror.Append(problems, fmt.Errorf("listing %s: %w", kind.Kind, err))
			continue
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			if kept(object) || isCopy(object) {
				continue
			}
			log.FromContext(ctx).Info("deleting what is no longer wanted", "kind", kind.Kind, "object", client.ObjectKeyFromObject(object))
			uid := object.GetUID()
			err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
			if client.IgnoreNotFound(err) != nil {
				problems = multierror.Append(problems, fmt.Errorf("deleting %s %s: %w", kind.Kind, object.GetName(), err))
			}
		}
	}
	if err := problems.ErrorOrNil(); err != nil {
		return fmt.Errorf("removing what is no longer wanted: %w", err)
	}
	return nil
}

func identities(objects []*unstructured.Unstructured) map[identity]bool {
	set := make(map[identity]bool, len(objects))
	for _, object := range objects {
		set[identify(object)] = true
	}
	return set
}

// fingerprintOf names a set of objects; the order counts, and plans are ordered.
func fingerprintOf(objects []*unstructured.Unstructured) string {
	var text strings.Builder
	for _, object := range objects {
		id := identify(object)
		fmt.Fprintf(&text, "%s %s\n", id.GroupKind, id.ObjectKey)
	}
	return text.String()
}
