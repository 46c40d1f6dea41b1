package vmi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/runtime/handler/hostdisk"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// syncTimeout bounds one call to a launcher, so that a hung one does not hold a worker.
const syncTimeout = 2 * time.Minute

// locate finds the launcher's pod and session.
func (r *Reconciler) locate(ctx context.Context, s *scope) error {
	pods := &corev1.PodList{}
	created := client.MatchingLabels{v1.CreatedByLabel: string(s.vmi.UID)}
	if err := r.Client.List(ctx, pods, client.InNamespace(s.vmi.Namespace), created); err != nil {
		return fmt.Errorf("listing launcher pods of VMI %s: %w", s.vmi.Name, err)
	}
	for i := range pods.Items {
		if newer(&pods.Items[i], s.pod) {
			s.pod = &pods.Items[i]
		}
	}
	if s.pod == nil {
		return fmt.Errorf("%w for a launcher pod of VMI %s on this node", errWait, s.vmi.Name)
	}
	if s.session = r.Sessions.Session(s.pod.UID); s.session == nil {
		return fmt.Errorf("%w for the socket of pod %s", errWait, s.pod.Name)
	}
	s.view = s.session.View()
	if s.view.Failure != nil {
		return fmt.Errorf("serving the socket of pod %s: %w", s.pod.Name, s.view.Failure)
	}
	if s.view.State == nil {
		return fmt.Errorf("%w for the launcher in pod %s to connect and say what it runs", errWait, s.pod.Name)
	}
	return nil
}

// newer prefers running pods to ended ones, then the later.
func newer(pod, other *corev1.Pod) bool {
	if other == nil {
		return true
	}
	if ended(pod) != ended(other) {
		return ended(other)
	}
	return other.CreationTimestamp.Before(&pod.CreationTimestamp)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// checkEnd stops at a domain that has ended, for only its status is left to write, and at a
// launcher that does not answer: when its VMI is deleted, the kubelet ends it with its pod.
func (r *Reconciler) checkEnd(_ context.Context, s *scope) error {
	if final(s.view.State.Phase) {
		return fmt.Errorf("%w for the pod to end: its domain has", errWait)
	}
	if s.view.Launcher == nil {
		return fmt.Errorf("%w for the launcher to connect again", errWait)
	}
	if s.view.Silence != nil && s.view.Silence.Part == protocol.PartLauncher {
		return fmt.Errorf("%w for the launcher to answer", errWait)
	}
	return nil
}

func final(phase protocol.Phase) bool {
	return phase == protocol.PhaseShutdown || phase == protocol.PhaseCrashed || phase == protocol.PhaseFailed
}

// checkDisks makes sure that the launcher gets every container disk. Init containers
// have handed all over before the launcher starts, but for what is in image volumes; what lacks was lost.
func (r *Reconciler) checkDisks(ctx context.Context, s *scope) error {
	if s.view.State.Phase != protocol.PhaseNone || s.view.Synced != nil {
		return nil
	}
	missing := volume.Missing(s.vmi, s.view.Disks)
	if len(missing) == 0 {
		return nil
	}
	if err := takeImages(s, missing); err != nil {
		s.failure = &failure{reason: ReasonContainerDiskFailed, message: err.Error()}
	} else if missing = volume.Missing(s.vmi, s.view.Disks); len(missing) == 0 {
		return nil
	} else {
		s.failure = &failure{reason: ReasonContainerDiskLost, message: fmt.Sprintf(
			"virt-handler restarted after the pod had handed over the container disks %s and before the launcher had them; start the VM again",
			strings.Join(missing, ", "))}
	}
	if err := s.session.Destroy(ctx); err != nil && !errors.Is(err, session.ErrNotConnected) {
		return fmt.Errorf("ending the launcher of VMI %s: %w", s.vmi.Name, err)
	}
	return fmt.Errorf("%w for the pod to be replaced", errWait)
}

// prepareAndSync makes the pod's network and devices ready and tells the launcher what
// to run, unless this launcher knows it by now.
func (r *Reconciler) prepareAndSync(ctx context.Context, s *scope) error {
	key, err := syncKey(s)
	if err != nil {
		return err
	}
	if s.view.Synced != nil && s.view.Synced.Key == key {
		return nil
	}
	if s.view.Silence != nil {
		return fmt.Errorf("%w for %s to answer", errWait, s.view.Silence.Part)
	}
	if err := giveDevices(s); err != nil {
		return err
	}
	if err := allowRealtime(s); err != nil {
		return err
	}
	config, err := r.configuration(ctx)
	if err != nil {
		return err
	}
	if err := r.makeHostDisks(s, hostdisk.LimitsOf(config.DeveloperConfiguration)); err != nil {
		return err
	}
	plan, podInterface, err := connect(s)
	if err != nil {
		return fmt.Errorf("connecting VMI %s to the pod's network: %w", s.vmi.Name, err)
	}
	vmi := volume.AtStart(s.vmi, s.pod)
	sizes, preallocated, err := r.claimFacts(ctx, vmi)
	if err != nil {
		return err
	}
	what := session.Synced{Key: key, PodInterface: podInterface, Facts: protocol.Facts{
		NodeName: r.NodeName, AllowEmulation: !requestsKVM(s.pod), Interfaces: plan.Interfaces,
		ClaimSizes: sizes, Preallocated: preallocated, SMBIOS: config.SMBIOSConfig, Options: config.VirtualMachineOptions,
		BalloonPeriod: config.MemBalloonStatsPeriod,
	}}
	log.FromContext(ctx).Info("Telling the launcher what to run", "pod", s.pod.Name)
	ctx, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	err = s.session.Sync(ctx, withoutManagedFields(vmi), what)
	s.view = s.session.View()
	if errors.Is(err, session.ErrNotConnected) || errors.Is(err, session.ErrSilent) {
		return fmt.Errorf("%w for the launcher to connect or answer again", errWait)
	}
	return err
}

// releaseDisks lets go of the container disks once the domain has them open.
func (r *Reconciler) releaseDisks(_ context.Context, s *scope) error {
	if phase := s.view.State.Phase; phase == protocol.PhaseRunning || phase == protocol.PhasePaused {
		s.session.ReleaseDisks()
	}
	return nil
}

// syncKey names all that a sync is made from.
func syncKey(s *scope) (string, error) {
	data, err := json.Marshal(struct {
		Pod  types.UID
		Spec *v1.VirtualMachineInstanceSpec
	}{s.pod.UID, &s.vmi.Spec})
	if err != nil {
		return "", fmt.Errorf("encoding spec of VMI %s: %w", s.vmi.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func withoutManagedFields(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	out := vmi.DeepCopy()
	out.ManagedFields = nil
	return out
}
