package virtualmachineexport

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// scope is what one pass over an export knows.
type scope struct {
	export *exportv1.VirtualMachineExport
	now    time.Time
	// pod is the export server's, nil when there is none; set by readPod, endServer and makeServer.
	pod *corev1.Pod
	// volumes are what is exported, and machine the VM that they are of, "" for none; set by findVolumes.
	volumes []Volume
	machine string
	// vm is that VM as it is exported, nil for none; set by findVolumes.
	vm *virtv1.VirtualMachine
	// backups are the claims of a snapshot that are to be made; set by findVolumes.
	backups []backup
	// known is by what the export's servers are known; set by makeService.
	known identity
	// published is how the export is reached from outside of the cluster; set by findPublished.
	published published
	// lack says why the volumes cannot be exported now; nil when they can. Set by findVolumes and checkUsers.
	lack    *lack
	problem *problem
	// gone says that the export was deleted, so that nothing can be written to it.
	gone bool
}

// Volume is one volume of an export.
type Volume struct {
	// Name is by what it is known to who downloads it, Claim where it is.
	Name, Claim string
	// Block says that the claim is a block device, Disk that it holds a disk and not files.
	Block, Disk bool
	// Bound says that the claim has its volume.
	Bound bool `json:"-"`
	// was is what is asked for with a claim of its own.
	was *corev1.PersistentVolumeClaimSpec
}

// formats are in what a volume can be had.
func (v Volume) formats() []exportv1.ExportVolumeFormat {
	if v.Disk {
		return vmexport.Disk
	}
	return vmexport.Files
}

// lack is why a source cannot be exported.
type lack struct {
	reason, message string
	// empty says that it has nothing to export, so that nothing is waited for.
	empty bool
}

// read reads the export past the caches; nil when it is gone, or goes.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{export: &exportv1.VirtualMachineExport{}, now: r.now()}
	found, err := r.get(ctx, key, s.export)
	if err != nil || !found || s.export.DeletionTimestamp != nil {
		return nil, err
	}
	return s, nil
}

// get reads an object past the caches, and says whether there is one.
func (r *Reconciler) get(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := r.live.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}

// expire deletes an export whose time is over.
func (r *Reconciler) expire(ctx context.Context, s *scope) error {
	if s.now.Before(vmexport.Expiry(s.export)) {
		return nil
	}
	log.FromContext(ctx).Info("Deleting the export, its time is over")
	if err := r.Delete(ctx, s.export, client.Preconditions{UID: &s.export.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting VirtualMachineExport %s: %w", client.ObjectKeyFromObject(s.export), err)
	}
	s.gone = true
	return steps.ErrDone
}

// next says when there is to be a pass that no event brings.
func (s *scope) next() ctrl.Result {
	left := max(vmexport.Expiry(s.export).Sub(s.now), time.Millisecond)
	switch {
	case s.problem != nil, hasFailed(s.pod), s.published.Unknown:
		left = min(left, retry)
	case s.pod != nil, s.lack != nil && s.lack.reason == reasonInUse:
		left = min(left, look)
	}
	return ctrl.Result{RequeueAfter: left}
}

// status is what was written of export, empty when nothing was.
func status(export *exportv1.VirtualMachineExport) exportv1.VirtualMachineExportStatus {
	return ptr.Deref(export.Status, exportv1.VirtualMachineExportStatus{})
}

// tokenSecret is the name of the Secret with the token: the user's, or the one that is made.
func tokenSecret(export *exportv1.VirtualMachineExport) string {
	if given := ptr.Deref(export.Spec.TokenSecretRef, ""); given != "" {
		return given
	}
	return fmt.Sprintf("export-token-%s", export.UID)
}

func owner(export *exportv1.VirtualMachineExport) metav1.OwnerReference {
	return *metav1.NewControllerRef(export, exportv1.SchemeGroupVersion.WithKind(vmexport.Kind))
}

// notOurs says what becomes of object, which has a name that the export needs, and another owner.
func (s *scope) notOurs(kind string, object client.Object) error {
	by := metav1.GetControllerOf(object)
	if object.GetDeletionTimestamp() != nil || by != nil && by.Kind == vmexport.Kind && by.Name == s.export.Name {
		return fail("waiting until %s %s is gone, which a former export of this name has left", kind, object.GetName())
	}
	return fail("%s %s exists and is not the export's; delete it, or name the export otherwise", kind, object.GetName())
}

// key is the name of something of the export.
func (s *scope) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.export.Namespace, Name: name}
}

// serverName is the name of its pod and its Service.
func (s *scope) serverName() string { return vmexport.ServerName(s.export.Name) }
