package vmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/process"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// attachment is a pod that holds a volume which came after the launcher pod.
type attachment struct {
	pod     *corev1.Pod
	session *session.Session // nil while it is not served
	claim   string
	// released says that the volume's status tells that the guest has let go of the disk: the
	// pod is on its way out, and nothing of it is to be opened again.
	released bool
}

// holds says whether the volume of the pod can be opened.
func (a attachment) holds() bool {
	return !a.released && a.pod.DeletionTimestamp == nil && a.session != nil && a.session.HoldsVolume()
}

// findAttachments finds the VMI's attachment pods on this node, in order of age, and what
// is known of the claims of volumes that came late.
func (r *Reconciler) findAttachments(ctx context.Context, s *scope) error {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(s.vmi.Namespace), client.MatchingLabels{v1.AppLabel: names.AppAttachment}); err != nil {
		return fmt.Errorf("listing attachment pods of VMI %s: %w", s.vmi.Name, err)
	}
	released := releasedPods(s.before)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if metav1.IsControlledBy(pod, s.vmi) {
			s.attachments = append(s.attachments, attachment{
				pod: pod, session: r.Sessions.Session(pod.UID), claim: volume.ClaimOfPod(pod), released: released[pod.UID],
			})
		}
	}
	slices.SortFunc(s.attachments, func(a, b attachment) int {
		return a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time)
	})
	return r.readLateClaims(ctx, s)
}

func releasedPods(status *runtimeStatus) map[types.UID]bool {
	released := map[types.UID]bool{}
	for _, one := range status.VolumeStatus {
		if one.HotplugVolume != nil && one.Phase == v1.HotplugVolumeUnMounted {
			released[one.HotplugVolume.AttachPodUID] = true
		}
	}
	return released
}

// readLateClaims reads the claims of volumes that the guest does not have yet.
func (r *Reconciler) readLateClaims(ctx context.Context, s *scope) error {
	s.claims = map[string]*corev1.PersistentVolumeClaim{}
	late := volume.DumpClaims(s.vmi)
	for name, claimName := range volume.Claims(s.vmi) {
		if !volume.Mounted(s.pod, name, claimName) {
			late[name] = claimName
		}
	}
	if s.backup != nil {
		late[s.backup.Volume()] = s.backup.Claim
	}
	for name, claimName := range late {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.vmi.Namespace, Name: claimName}, claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("getting claim %s of volume %s: %w", claimName, name, err)
		}
		if err == nil {
			s.claims[name] = claim
		}
	}
	return nil
}

// plugDisks gives a running guest the disks that its VMI got, and takes those away that
// the VMI has no more.
func (r *Reconciler) plugDisks(ctx context.Context, s *scope) error {
	if !guestRuns(s) {
		return nil
	}
	s.pluggable = true
	ctx, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	var errs []error
	for _, disk := range s.view.State.Disks {
		if wantsDisk(s.vmi, disk) && !disk.Leaving {
			continue
		}
		log.FromContext(ctx).Info("Taking a disk from the guest", "volume", disk.Volume)
		what := protocol.Unplug{VMI: withoutManagedFields(s.vmi), Volume: disk.Volume}
		errs = append(errs, s.note(disk.Volume, s.session.Unplug(ctx, what, disk.Leaving)))
		s.lookAgain = session.UnplugAgain
	}
	for _, name := range lateDisks(s.vmi, s.view.State.Disks) {
		errs = append(errs, s.note(name, r.plug(ctx, s, name)))
	}
	s.view = s.session.View()
	return errors.Join(errs...)
}

// guestRuns says whether the launcher has started the guest that it was told of.
func guestRuns(s *scope) bool {
	phase := s.view.State.Phase
	return (phase == protocol.PhaseRunning || phase == protocol.PhasePaused) && s.view.Synced != nil
}

// note keeps what went wrong with a volume for its status. That the launcher is away, or
// is too old, is no error of the pass: another connection, or a restart, mends it; nor is it that
// a device is in use, which is looked at again.
func (s *scope) note(name string, err error) error {
	if err == nil {
		return nil
	}
	if s.plugErrors == nil {
		s.plugErrors = map[string]string{}
	}
	s.plugErrors[name] = err.Error()
	if errors.Is(err, process.ErrInUse) { // nobody tells of its end
		s.lookAgain = session.UnplugAgain
		return nil
	}
	if errors.Is(err, session.ErrNotConnected) || errors.Is(err, session.ErrOldLauncher) {
		return nil
	}
	return fmt.Errorf("volume %s of VMI %s: %w", name, s.vmi.Name, err)
}

// wantsDisk says whether the VMI has the disk of its domain, on the claim that it came from.
func wantsDisk(vmi *v1.VirtualMachineInstance, disk protocol.Disk) bool {
	for i := range vmi.Spec.Volumes {
		if vmi.Spec.Volumes[i].Name == disk.Volume {
			return disk.Claim == "" || disk.Claim == volume.Claims(vmi)[disk.Volume]
		}
	}
	return false
}

// lateDisks are the disks on claims that the guest does not have.
func lateDisks(vmi *v1.VirtualMachineInstance, has []protocol.Disk) []string {
	claims := volume.Claims(vmi)
	var late []string
	for i := range vmi.Spec.Domain.Devices.Disks {
		name := vmi.Spec.Domain.Devices.Disks[i].Name
		known := slices.ContainsFunc(has, func(disk protocol.Disk) bool { return disk.Volume == name })
		if claims[name] != "" && !known {
			late = append(late, name)
		}
	}
	return late
}

// plug gives the guest a disk, once its volume is on the node.
func (r *Reconciler) plug(ctx context.Context, s *scope, name string) error {
	claimName := volume.Claims(s.vmi)[name]
	what := protocol.Plug{VMI: withoutManagedFields(s.vmi), Volume: name}
	if claim := s.claims[name]; claim != nil {
		what.ClaimSize, what.Preallocated = claim.Status.Capacity.Storage().Value(), volume.Preallocated(claim)
	}
	if volume.Mounted(s.pod, name, claimName) {
		return s.session.Plug(ctx, what)
	}
	for _, a := range s.attachments {
		if volume.Held(a.pod) != name || a.claim != claimName || !a.holds() {
			continue
		}
		if volume.HeldAsDevice(a.pod) {
			return r.plugDevice(ctx, s, a, what)
		}
		folder, err := a.session.Volume()
		if err != nil {
			return err
		}
		defer folder.Close()
		log.FromContext(ctx).Info("Giving the guest a disk", "volume", name, "attachmentPod", a.pod.Name)
		return s.session.Plug(ctx, what, []*os.File{folder}...)
	}
	return nil
}

// plugDevice gives the guest a disk on a block device. The launcher's pod has no right to open the
// device: it gets it open.
func (r *Reconciler) plugDevice(ctx context.Context, s *scope, a attachment, what protocol.Plug) error {
	if err := s.view.Launcher.GiveFolder(names.LauncherLentDir, names.QEMUUser); err != nil {
		return err
	}
	device, err := a.session.Device(volume.AccessOf(s.vmi, what.Volume))
	if errors.Is(err, process.ErrInUse) {
		return fmt.Errorf("claim %s: %w by another virtual machine or process on this node; the guest gets the disk when it is free", a.claim, process.ErrInUse)
	}
	if err != nil {
		return err
	}
	defer device.Close()
	log.FromContext(ctx).Info("Giving the guest a disk on a block device", "volume", what.Volume, "attachmentPod", a.pod.Name)
	return s.session.PlugDevice(ctx, what, device)
}

// runsAttachment maps an attachment pod to its VMI.
func runsAttachment(_ context.Context, obj client.Object) []reconcile.Request {
	vmi := obj.GetAnnotations()[v1.DomainAnnotation]
	if obj.GetLabels()[v1.AppLabel] != names.AppAttachment || vmi == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: vmi}}}
}
