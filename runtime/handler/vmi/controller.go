// Package vmi keeps the node's VirtualMachineInstances running: from the moment when
// one is Scheduled on this node, it prepares what needs privilege, tells the launcher
// what to run, passes deletion on, and writes the runtime part of the VMI's status.
//
// Nothing is stored on the node. After a restart the launchers connect again and say
// what they run, and the status follows.
package vmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/handler/session"
)

// workers is how many VMIs of a node are prepared at the same time.
const workers = 8

// Reconciler is the node's side of VMIs.
type Reconciler struct {
	Client client.Client
	// Reader reads past the cache, what is needed once for a VMI.
	Reader   client.Reader
	Recorder events.EventRecorder
	Sessions *session.Server
	NodeName string

	written ledger
}

// SetupWithManager registers the reconciler; sessions tells of VMIs whose session changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, sessions <-chan event.GenericEvent) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstance").
		For(&v1.VirtualMachineInstance{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(vmiOfPod), builder.WithPredicates(readinessChanged())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(runsAttachment)).
		WatchesRawSource(source.Channel(sessions, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VMI controller: %w", err)
	}
	return nil
}

// Changed makes the event by which a session's news reach the reconciler.
func Changed(vmi types.NamespacedName) event.GenericEvent {
	object := &v1.VirtualMachineInstance{}
	object.Namespace, object.Name = vmi.Namespace, vmi.Name
	return event.GenericEvent{Object: object}
}

// scope is what one pass has seen and made.
type scope struct {
	vmi *v1.VirtualMachineInstance
	// before is the VMI's status as it was written last.
	before *runtimeStatus
	// pod and session are the launcher's; set by locate.
	pod     *corev1.Pod
	session *session.Session
	// view is the session, looked at by locate and again at the end of the pass.
	view session.View
	// failure ends the VMI when it is set; by whichever step cannot go on for good.
	failure *failure
	// trouble is the error that ended the pass, to be tried again.
	trouble error
	// signalled is set by shutDown when it has just told the launcher, to the event it deserves.
	signalled v1.SyncEvent
	// attachments hold the volumes that came after the launcher pod, claims are what is known of
	// these volumes; set by findAttachments.
	attachments []attachment
	claims      map[string]*corev1.PersistentVolumeClaim
	// pluggable says that the launcher has told what disks its guest has, plugErrors why volumes
	// could not be given or taken, or not be dumped to; set by plugDisks and dumpMemory.
	pluggable  bool
	plugErrors map[string]string
	// backup is what virt-controller asks for; nil for nothing. backupRefused says why it cannot begin, ever; set by backUp.
	backup        *backup.Request
	backupRefused string
	// dumpRefused is a volume to which the launcher is too old to dump; set by dumpMemory.
	dumpRefused string
	// lookAgain is when a guest that has not ended is to be forced, or one that keeps a disk asked
	// again; set by shutDown and plugDisks.
	lookAgain time.Duration
}

// failure is why a VMI cannot run any more.
type failure struct{ reason, message string }

// errWait ends a pass that can go on only when something else happens, of which the
// reconciler is told.
var errWait = errors.New("waiting")

// Reconcile brings a VMI of this node to what its spec says.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	s := &scope{vmi: &v1.VirtualMachineInstance{}}
	if err := r.Client.Get(ctx, request.NamespacedName, s.vmi); err != nil {
		if apierrors.IsNotFound(err) {
			r.written.forget(request.NamespacedName)
			metric.ForgetSyncs(request.Namespace, request.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("getting VMI %s: %w", request.NamespacedName, err)
	}
	if !ours(s.vmi, r.NodeName) {
		return ctrl.Result{}, nil
	}
	metric.Synced(request.Namespace, request.Name)
	s.before = r.written.latest(request.NamespacedName, s.vmi)
	s.backup = requestedBackup(ctx, s.vmi)
	defer func() {
		if writeErr := r.writeStatus(ctx, s); writeErr != nil {
			err = errors.Join(err, writeErr)
		}
	}()
	// The order: a VMI that is to end is prepared no further; the launcher gets
	// everything at once, so all that it needs comes before sync; a backup is ended before disks are changed.
	for _, step := range []func(context.Context, *scope) error{
		r.locate,
		r.findAttachments,
		r.checkEnd,
		r.shutDown,
		r.checkDisks,
		r.prepareAndSync,
		r.releaseDisks,
		r.backUp,
		r.plugDisks,
		r.dumpMemory,
		r.resizeGuest,
	} {
		if err := step(ctx, s); errors.Is(err, errWait) {
			log.FromContext(ctx).V(1).Info("Waiting", "reason", err.Error())
			break
		} else if err != nil {
			s.trouble = err
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: s.lookAgain}, nil
}

// ours says whether the VMI is this handler's: scheduled on this node and not ended.
func ours(vmi *v1.VirtualMachineInstance, node string) bool {
	if vmi.Status.NodeName != node {
		return false
	}
	return vmi.Status.Phase == v1.Scheduled || vmi.Status.Phase == v1.Running
}
