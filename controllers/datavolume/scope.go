package datavolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// scope is what one pass over a DataVolume has found.
type scope struct {
	dv    *cdiv1.DataVolume
	plan  plan                          // by read
	claim *corev1.PersistentVolumeClaim // by read, or created by ensureClaim; nil while there is none
	class *storagev1.StorageClass       // by read: the claim's class, or the one that it will have
	pod   *corev1.Pod                   // by read, or created by ensurePod; nil while there is none
	// config is what holds for all DataVolumes. By read.
	config   cdiv1.CDIConfigStatus
	workload cdiconfig.Workload     // by read: where pods run
	tls      *tlspolicy.Settings    // by read: how upload servers speak TLS; nil for 1.2 and newer
	insecure []string               // by read: the registries whose certificates are not checked
	ttl      *int32                 // by read: after how many seconds DataVolumes go that have succeeded; nil for never
	adopts   bool                   // by read: whether claims that are there are taken over where nothing else is said
	proxy    *cdiconfig.ImportProxy // by readProxy: how servers are reached; nil where nobody asked
	// waiting says why the pass ended early, and failed why it can never succeed.
	waiting, failed *obstacle
	origin          *origin // by ensureClaim: what is cloned, while there is no claim
	// cloning says how far the clone is that is made in the source's namespace, or its snapshot;
	// taking that it is a snapshot.
	cloning *obstacle
	taking  bool
	// copied says that the clone which is not there yet is a copy, way how far one is that is brought. By ensureClaim.
	copied bool
	way    way
	// pinned says that what is copied lies on some nodes only, where the claim will be. By read, or ensureClaim.
	pinned bool
	// missed is the snapshot that the claim is to be made from, when that is gone. By missSnapshot.
	missed string
	// last is what the importer's last run ended with; nil when none has ended. By read.
	last     *transfer.Result
	progress transfer.Progress // by read, from the listener
	told     bool              // likewise: whether the pod was asked
	result   ctrl.Result
}

// obstacle is what stands in the way of a DataVolume.
type obstacle struct{ reason, message string }

// read gathers what there is. It decides nothing.
func (r *Reconciler) read(ctx context.Context, dv *cdiv1.DataVolume) (*scope, error) {
	s := &scope{dv: dv}
	var refused string
	if s.plan, refused = newPlan(dv); refused != "" {
		s.failed = &obstacle{reasonUnsupported, refused}
	}
	key := types.NamespacedName{Namespace: dv.Namespace, Name: claimName(dv)}
	var err error
	if s.claim, err = get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{}); err != nil {
		return nil, err
	}
	if err := r.recognizeCopy(ctx, s); err != nil {
		return nil, err
	}
	key.Name = s.plan.podName(dv.Name)
	if s.pod, err = get(ctx, r.Client, key, &corev1.Pod{}); err != nil {
		return nil, err
	}
	if s.pod != nil && !metav1.IsControlledBy(s.pod, dv) {
		s.pod = nil // of an earlier DataVolume of this name; it goes with that
	}
	if s.class, err = r.classOf(ctx, s); err != nil {
		return nil, err
	}
	if err = r.readConfig(ctx, s); err != nil {
		return nil, err
	}
	s.last = lastResult(s.pod)
	s.progress, s.told = r.listeners.Latest(client.ObjectKeyFromObject(s.dv), s.pod)
	return s, nil
}

// get reads an object, or returns nil when there is none.
func get[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	if err := c.Get(ctx, key, into); apierrors.IsNotFound(err) {
		return none, nil
	} else if err != nil {
		return none, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return into, nil
}

// classOf returns the class of the claim, or of the claim that will be made, nil when none is known.
func (r *Reconciler) classOf(ctx context.Context, s *scope) (*storagev1.StorageClass, error) {
	var name *string
	switch {
	case s.claim != nil:
		name = s.claim.Spec.StorageClassName
	case s.dv.Spec.PVC != nil:
		name = s.dv.Spec.PVC.StorageClassName
	case s.dv.Spec.Storage != nil:
		name = s.dv.Spec.Storage.StorageClassName
	}
	if name != nil {
		return get(ctx, r.Client, types.NamespacedName{Name: *name}, &storagev1.StorageClass{})
	}
	var classes storagev1.StorageClassList
	if err := r.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("listing storage classes: %w", err)
	}
	return defaultClass(classes.Items), nil
}

// defaultClass prefers the default for virtual machines to the default for all, and of several the newest, as Kubernetes does.
func defaultClass(classes []storagev1.StorageClass) *storagev1.StorageClass {
	for _, annotation := range []string{names.AnnotationDefaultVirtClass, names.AnnotationDefaultClass} {
		var newest *storagev1.StorageClass
		for n := range classes {
			class := &classes[n]
			if class.Annotations[annotation] == valueTrue && (newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp)) {
				newest = class
			}
		}
		if newest != nil {
			return newest
		}
	}
	return nil
}

// ours reports whether the claim belongs to the DataVolume, or has it to be filled by.
func (s *scope) ours() bool {
	return s.claim != nil && (metav1.IsControlledBy(s.claim, s.dv) || s.inPlace())
}

// inPlace reports whether the DataVolume fills a claim that was there before it.
func (s *scope) inPlace() bool {
	return s.claim != nil && s.claim.Name != s.dv.Name && metav1.IsControlledBy(s.dv, s.claim) && population.InPlace(s.claim)
}

// populated reports whether a populator fills the claim and has told how far it is.
func (s *scope) populated() bool {
	return s.plan.kind == kindExternal && s.claim != nil && population.Source(s.claim) != "" && s.claim.Annotations[population.AnnotationProgress] != ""
}

// claimName is the name of the claim that a DataVolume fills: its own, unless a populator says otherwise.
func claimName(dv *cdiv1.DataVolume) string {
	name := dv.Annotations[population.AnnotationFills]
	if by := metav1.GetControllerOf(dv); name != "" && by != nil && by.Kind == kindClaim && by.Name == name {
		return name
	}
	return dv.Name
}

// done reports whether the claim is filled.
func (s *scope) done() bool {
	return s.ours() && s.claim.Annotations[AnnotationPodPhase] == phaseSucceeded
}

// waitsForConsumer reports whether the claim's class binds it only where a pod uses it, and none does.
func (s *scope) waitsForConsumer() bool {
	return s.claim != nil && s.claim.Status.Phase == corev1.ClaimPending && s.class != nil &&
		s.class.VolumeBindingMode != nil && *s.class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer &&
		s.claim.Annotations[annotationSelectedNode] == "" && s.claim.Spec.VolumeName == "" && !s.immediate() && !s.pinned
}

// immediate reports whether the claim is to be bound at once, wherever that is.
func (s *scope) immediate() bool {
	value, asked := s.dv.Annotations[names.AnnotationBind] // virtctl image-upload --force-bind leaves it empty
	return asked && value != "false"
}

// lastResult is what the importer's last ended run left, nil when no run has ended.
func lastResult(pod *corev1.Pod) *transfer.Result {
	if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
		return nil
	}
	status := pod.Status.ContainerStatuses[0]
	ended := status.State.Terminated
	if ended == nil {
		ended = status.LastTerminationState.Terminated
	}
	if ended == nil {
		return nil
	}
	result, err := transfer.Decode(ended.Message)
	if err != nil || ended.ExitCode != 0 && result.Reason == "" {
		return &transfer.Result{Reason: transfer.Internal, Retryable: true, Message: crashMessage(ended)}
	}
	return &result
}

// crashMessage describes the end of an importer that could not say why itself.
func crashMessage(ended *corev1.ContainerStateTerminated) string {
	if ended.Reason == "OOMKilled" {
		return "the importer was killed because it used more memory than its limit"
	}
	return fmt.Sprintf("the importer ended with code %d (%s) and no message; its log says more", ended.ExitCode, ended.Reason)
}

// restarts is how often the importer was restarted.
func (s *scope) restarts() int32 {
	if s.pod == nil || len(s.pod.Status.ContainerStatuses) == 0 {
		return s.dv.Status.RestartCount
	}
	return s.pod.Status.ContainerStatuses[0].RestartCount
}
