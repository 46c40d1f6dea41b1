package hostpathprovisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// claims is how far the claims are that a pool lies on.
type claims struct {
	desired, ready int
	statuses       []hppv1beta1.ClaimStatus
	waits          string // the first of them that is not mounted, and why
}

// reconcilePools has each node that has the pools hold its claims of those that lie on claims.
func (r *Reconciler) reconcilePools(ctx context.Context, s *scope) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	existing, err := r.deployments(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	if !s.ending() {
		for _, pool := range s.object.Spec.StoragePools {
			if pool.PVCTemplate == nil {
				continue
			}
			if restsOnItself(s.object.Spec, pool) {
				s.degrade(ReasonConflict, fmt.Sprintf("storage pool %s lies on claims of StorageClass %s, which are made of the pool itself: add a pool of another name whose pvcTemplate names another class, and remove this one",
					pool.Name, ptr.Deref(pool.PVCTemplate.StorageClassName, "")))
				continue
			}
			for i := range nodes {
				h := holder{pool, &nodes[i]}
				if !s.object.Spec.Workload.Selects(h.node.Labels) || !runsHandler(h.node) {
					continue
				}
				held, err := r.hold(ctx, s, h, existing)
				if err != nil {
					return err
				}
				wanted[h.name()] = held
			}
		}
	}
	return r.dismiss(ctx, s, existing, wanted, nodes)
}

// runsHandler tells whether a node's virt-handler has told of itself, now or before.
func runsHandler(node *corev1.Node) bool {
	_, told := node.Labels[virtv1.NodeSchedulable]
	return told
}

func (r *Reconciler) nodes(ctx context.Context) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes.Items, nil
}

// deployments returns those of pools, of this object and of those before it.
func (r *Reconciler) deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	var deployments appsv1.DeploymentList
	err := r.live.List(ctx, &deployments, client.InNamespace(r.options.Namespace), client.MatchingLabels(labels()), client.HasLabels{names.LabelStoragePool})
	if err != nil {
		return nil, fmt.Errorf("listing the Deployments of storage pools: %w", err)
	}
	return deployments.Items, nil
}

// hold makes a pool's claim on a node, and the Deployment that keeps it mounted there. It returns false when there
// is to be no Deployment.
func (r *Reconciler) hold(ctx context.Context, s *scope, h holder, existing []appsv1.Deployment) (bool, error) {
	claim, err := r.claim(ctx, s, h)
	if err != nil || claim == nil {
		return false, err
	}
	if leaves, err := r.leaves(ctx, s, h, claim); err != nil || leaves {
		s.count(h, claim, false, fmt.Sprintf("PersistentVolumeClaim %s/%s is being deleted, and made anew then", claim.Namespace, claim.Name))
		return false, err
	}
	wanted := h.deployment(s.object, r.options)
	current := slices.IndexFunc(existing, func(d appsv1.Deployment) bool { return d.Name == wanted.Name })
	if current < 0 || !sameDeployment(wanted, &existing[current]) {
		err := apply.Object(ctx, r.Client, wanted, names.ManagerController)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			s.degrade(ReasonConflict, fmt.Sprintf("Deployment %s/%s cannot be what holds the claim of storage pool %s; delete it when it is another's: %v", wanted.Namespace, wanted.Name, h.pool.Name, err))
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	ready, why, err := r.mounted(ctx, h)
	if err != nil {
		return false, err
	}
	s.count(h, claim, ready, why)
	return true, nil
}

// sameDeployment compares what this controller sets; the API server adds defaults.
func sameDeployment(wanted, current *appsv1.Deployment) bool {
	return equality.Semantic.DeepDerivative(wanted.Spec, current.Spec) && within(wanted.Labels, current.Labels) &&
		within(wanted.Annotations, current.Annotations) && equality.Semantic.DeepEqual(wanted.OwnerReferences, current.OwnerReferences)
}

// count notes how far one claim is.
func (s *scope) count(h holder, claim *corev1.PersistentVolumeClaim, ready bool, why string) {
	of := s.claims[h.pool.Name]
	of.desired++
	if claim.UID != "" { // else there is none
		of.statuses = append(of.statuses, hppv1beta1.ClaimStatus{Name: claim.Name, Status: claim.Status})
	}
	switch {
	case ready:
		of.ready++
	case of.waits == "" && claim.Status.Phase != corev1.ClaimBound && claim.DeletionTimestamp == nil:
		of.waits = fmt.Sprintf("PersistentVolumeClaim %s/%s is not bound yet", claim.Namespace, claim.Name)
	case of.waits == "":
		of.waits = why
	}
	if s.claims == nil {
		s.claims = map[string]claims{}
	}
	s.claims[h.pool.Name] = of
}

// mounted tells whether a pod has a pool's claim on its node, and if not, what is to be looked at.
func (r *Reconciler) mounted(ctx context.Context, h holder) (bool, string, error) {
	var pods corev1.PodList
	err := r.List(ctx, &pods, client.InNamespace(r.options.Namespace), client.MatchingLabels{names.LabelPod: kindHolder, labelClaim: h.name()})
	if err != nil {
		return false, "", fmt.Errorf("listing the pods of storage pool %s: %w", h.pool.Name, err)
	}
	why := fmt.Sprintf("Deployment %s/%s has no pod yet", r.options.Namespace, h.name())
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		if pod.Status.Phase == corev1.PodRunning {
			return true, "", nil
		}
		why = fmt.Sprintf("pod %s/%s does not run yet: kubectl describe it", pod.Namespace, pod.Name)
	}
	return false, why, nil
}

// restsOnItself tells whether the claims that a pool lies on would be made of it, perhaps by way of other pools.
func restsOnItself(spec hppv1beta1.HostPathProvisionerSpec, pool hppv1beta1.StoragePool) bool {
	made := map[string]hppv1beta1.StoragePool{} // by the class's name
	for i, class := range storageClasses(spec) {
		made[class.Name] = spec.Pools()[i]
	}
	for seen := map[string]bool{}; pool.PVCTemplate != nil; {
		if seen[pool.Name] {
			return true
		}
		seen[pool.Name] = true
		below, ours := made[ptr.Deref(pool.PVCTemplate.StorageClassName, "")]
		if !ours {
			return false
		}
		pool = below
	}
	return false
}
