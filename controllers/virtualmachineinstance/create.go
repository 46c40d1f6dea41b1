package virtualmachineinstance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/steps"
)

// createPod creates the launcher pod. It writes nothing to the VMI when all is well:
// the pod's being placed, milliseconds later, is the next thing worth a write.
func (r *Reconciler) createPod(ctx context.Context, s *scope) error {
	in, err := r.podInput(ctx, s)
	if err != nil {
		return err
	}
	launcher, err := pod.Launcher(in)
	if err != nil {
		return r.noteFailedCreate(s, err)
	}
	// The cache may not have seen the pod of the last pass, or of the last controller.
	existing, err := r.livePod(ctx, s.vmi, pod.KindLauncher)
	if err != nil || existing != nil {
		return err
	}
	if err := r.Create(ctx, launcher, client.FieldOwner(names.ManagerController)); err != nil {
		return r.noteFailedCreate(s, fmt.Errorf("creating the launcher pod of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err))
	}
	r.normal(s.vmi, launcher, reasonCreate, "Created virtual machine pod %s", launcher.Name)
	return nil
}

// noteFailedCreate puts the failure where the user sees it and returns it, so that the
// pass is tried again with back-off. In a namespace that is being deleted it ends the pass.
func (r *Reconciler) noteFailedCreate(s *scope, err error) error {
	if namespace.Ending(err) {
		return steps.ErrDone
	}
	s.setCondition(conditionSynchronized, corev1.ConditionFalse, reasonCreateFailed, err.Error())
	r.warning(s.vmi, nil, reasonCreateFailed, "Error creating pod: %v", err)
	return err
}

// podInput gathers what the pods of the VMI are built from.
func (r *Reconciler) podInput(ctx context.Context, s *scope) (pod.Input, error) {
	settings, err := r.readSettings(ctx)
	if err != nil {
		return pod.Input{}, err
	}
	kvm, err := r.useKVM(ctx, settings)
	if err != nil {
		return pod.Input{}, err
	}
	vhost, err := r.useVhostNet(ctx, settings, s.vmi)
	if err != nil {
		return pod.Input{}, err
	}
	limitCPU, err := r.limitsCPU(ctx, settings, s.vmi.Namespace)
	if err != nil {
		return pod.Input{}, err
	}
	in := pod.Input{
		VMI:              s.vmi,
		LauncherImage:    r.options.LauncherImage,
		ProvisionerImage: r.options.ProvisionerImage,
		PullPolicy:       settings.pullPolicy,
		PullSecrets:      settings.pullSecrets,
		KVM:              kvm,
		VhostNet:         vhost,
		ImageVolumes:     settings.imageVolumes,
		CPURatio:         settings.cpuRatio,
		MemoryOvercommit: settings.memoryOvercommit,
		Claims:           claims(s.volumes),
		OverheadRatio:    settings.overheadRatio,
		LimitCPU:         limitCPU,
		Seccomp:          settings.seccomp,
		RuntimeClass:     settings.runtimeClass,
		NodeSelectors:    settings.nodeSelectors,
		LogVerbosity:     settings.launcherVerbosity,

		AttachmentResources: settings.attachmentResources,
	}
	if s.state != nil {
		in.State = s.state.claim
	}
	return in, nil
}

// livePod returns the VMI's pod of the kind as the API server has it now, nil when there is none.
func (r *Reconciler) livePod(ctx context.Context, vmi *virtv1.VirtualMachineInstance, kind string) (*corev1.Pod, error) {
	found, err := r.livePods(ctx, vmi, kind)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// livePods returns the VMI's pods of the kind as the API server has them now: one at most, but of a VMI that the version before this
// one may have made pods for, whose names cannot be told.
func (r *Reconciler) livePods(ctx context.Context, vmi *virtv1.VirtualMachineInstance, kind string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.readPods(ctx, vmi, kind, list)
	if err != nil {
		return nil, fmt.Errorf("reading the pods of %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	var found []*corev1.Pod
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], vmi) {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// readPods reads one pod by its name, which costs an API server nothing, or looks through all of the namespace.
func (r *Reconciler) readPods(ctx context.Context, vmi *virtv1.VirtualMachineInstance, kind string, list *corev1.PodList) error {
	if !vmi.CreationTimestamp.After(r.began) {
		labels := client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID), names.LabelPod: kind}
		return r.live.List(ctx, list, client.InNamespace(vmi.Namespace), labels) //nolint:wrapcheck // livePods says what was read
	}
	list.Items = make([]corev1.Pod, 1)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.Name(vmi, kind)}, &list.Items[0])
	if apierrors.IsNotFound(err) {
		list.Items, err = nil, nil
	}
	return err //nolint:wrapcheck // as above
}
