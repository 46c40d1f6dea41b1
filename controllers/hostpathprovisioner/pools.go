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
				wanted[h.name()] = true
				if err := r.hold(ctx, s, h, existing); err != nil {
					return err
				}
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

// hold makes a pool's claim on a node, and the Deployment that keeps it mounted there.
func (r *Reconciler) hold(ctx context.Context, s *scope, h holder, existing []appsv1.Deployment) error {
	claim, err := r.claim(ctx, s, h)
	if err != nil {
		return err
	}
	wanted := h.deployment(s.object, r.options)
	current := slices.IndexFunc(existing, func(d appsv1.Deployment) bool { return d.Name == wanted.Name })
	if current < 0 || !sameDeployment(wanted, &existing[current]) {
		err := apply.Object(ctx, r.Client, wanted, names.ManagerController)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			s.degrade(ReasonConflict, fmt.Sprintf("Deployment %s/%s cannot be what holds the claim of storage pool %s; delete it when it is another's: %v", wanted.Namespace, wanted.Name, h.pool.Name, err))
			return nil
		}
		if err != nil {
			return err
		}
	}
	ready, why, err := r.mounted(ctx, h)
	if err != nil {
		return err
	}
	s.count(h, claim, ready, why)
	return nil
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
	of.statuses = append(of.statuses, hppv1beta1.ClaimStatus{Name: claim.Name, Status: claim.Status})
	switch {
	case ready:
		of.ready++
	case of.waits == "" && claim.Status.Phase != corev1.ClaimBound:
		of.waits = fmt.Sprintf("PersistentVolumeClaim %s/%s is not bound yet", claim.Namespace, claim.Name)
	case of.waits == "":
		of.waits = why
	}
	if s.claims == nil {
		s.claims = map[string]claims{}
	}
	s.claims[h.pool.Name] = of
}

// claim returns the pool's claim on a node, which it makes when there is none. One that is there is left as it is, but
// grows when the template asks for more.
func (r *Reconciler) claim(ctx context.Context, s *scope, h holder) (*corev1.PersistentVolumeClaim, error) {
	wanted, current := h.claim(r.options.Namespace), &corev1.PersistentVolumeClaim{}
	err := r.Get(ctx, client.ObjectKeyFromObject(wanted), current)
	if apierrors.IsNotFound(err) {
		if err := r.Create(ctx, wanted, client.FieldOwner(names.ManagerController)); err != nil {
			return nil, fmt.Errorf("making the claim %s of storage pool %s: %w", wanted.Name, h.pool.Name, err)
		}
		return wanted, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the claim %s of storage pool %s: %w", wanted.Name, h.pool.Name, err)
	}
	if field := differs(&wanted.Spec, &current.Spec); field != "" {
		s.degrade(ReasonConflict, fmt.Sprintf("PersistentVolumeClaim %s/%s has another %s than the pvcTemplate of storage pool %s: put the former template back, or add a pool of another name",
			current.Namespace, current.Name, field, h.pool.Name))
		return current, nil
	}
	if wanted.Spec.Resources.Requests.Storage().Cmp(*current.Spec.Resources.Requests.Storage()) <= 0 {
		return current, nil
	}
	larger := current.DeepCopy()
	larger.Spec.Resources.Requests[corev1.ResourceStorage] = *wanted.Spec.Resources.Requests.Storage()
	err = r.Patch(ctx, larger, client.MergeFrom(current), client.FieldOwner(names.ManagerController))
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		s.degrade(ReasonConflict, fmt.Sprintf("PersistentVolumeClaim %s/%s of storage pool %s cannot grow; let its pvcTemplate ask for what it has: %v", current.Namespace, current.Name, h.pool.Name, err))
		s.retry = true // its class may come to allow it
		return current, nil
	}
	if err != nil {
		return nil, fmt.Errorf("expanding the claim %s of storage pool %s: %w", current.Name, h.pool.Name, err)
	}
	return larger, nil
}

// differs names what a claim, which cannot change it, has otherwise than is wanted.
func differs(wanted, current *corev1.PersistentVolumeClaimSpec) string {
	switch {
	case wanted.StorageClassName != nil && *wanted.StorageClassName != ptr.Deref(current.StorageClassName, ""):
		return "storageClassName"
	case ptr.Deref(current.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return "volumeMode"
	case !equality.Semantic.DeepEqual(wanted.Selector, current.Selector):
		return "selector"
	}
	return ""
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

// dismiss deletes the Deployments that are not wanted any more, but not one whose claim holds volumes that
// may be in use: its driver would take the claim from the node.
func (r *Reconciler) dismiss(ctx context.Context, s *scope, existing []appsv1.Deployment, wanted map[string]bool, nodes []corev1.Node) error {
	var volumes []corev1.PersistentVolume
	for i := range existing {
		deployment := &existing[i]
		if wanted[deployment.Name] || deployment.DeletionTimestamp != nil {
			continue
		}
		if volumes == nil && !s.ending() {
			var all corev1.PersistentVolumeList
			if err := r.live.List(ctx, &all); err != nil {
				return fmt.Errorf("listing persistent volumes: %w", err)
			}
			volumes = all.Items
		}
		if volume := heldBy(deployment, volumes, nodes); volume != "" {
			s.wait(ReasonVolumes, fmt.Sprintf("Deployment %s/%s is not asked for any more and stays, since its claim has volumes, such as %s: name its pool and node again, and delete the volumes' claims first",
				deployment.Namespace, deployment.Name, volume))
			s.retry = true
			continue
		}
		if err := r.Delete(ctx, deployment); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the Deployment %s of a storage pool: %w", deployment.Name, err)
		}
	}
	return nil
}

// heldBy names a volume in the claim that a Deployment holds, "" when there is none or its node is gone.
func heldBy(deployment *appsv1.Deployment, volumes []corev1.PersistentVolume, nodes []corev1.Node) string {
	node := deployment.Annotations[annotationNode]
	if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == node }) {
		return ""
	}
	for i := range volumes {
		source := volumes[i].Spec.CSI
		if source == nil || source.Driver != names.HostPathDriver || !onNode(&volumes[i], node) {
			continue
		}
		pool := hppv1beta1.StoragePool{Name: source.VolumeAttributes[parameterPool]}
		if pool.Label() == deployment.Labels[names.LabelStoragePool] {
			return volumes[i].Name
		}
	}
	return ""
}

func onNode(volume *corev1.PersistentVolume, node string) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == names.TopologyNode && slices.Contains(expression.Values, node) {
				return true
			}
		}
	}
	return false
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
