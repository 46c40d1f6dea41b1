package virtualmachinetemplaterequest

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

// scope is what one pass over a request knows.
type scope struct {
	request *vmtemplatev1beta1.VirtualMachineTemplateRequest
	now     time.Time
	// snapshot is the request's, nil while there is none; set by read and takeSnapshot.
	snapshot *snapshotv1.VirtualMachineSnapshot
	// disks are the request's DataVolumes by name; set by read and copyDisks.
	disks map[string]*cdiv1.DataVolume
	// template is the request's, nil while there is none; set by read and makeTemplate.
	template *vmtemplatev1beta1.VirtualMachineTemplate
	// foreign is what is under a name of the request's snapshot or template and is not the request's; nil when nothing is.
	foreign client.Object
	// content is the snapshot's, once that is ready, and planned the template that is to be; set by awaitSnapshot and plan.
	content *snapshotv1.VirtualMachineSnapshotContent
	planned *vmtemplatev1beta1.VirtualMachineTemplate
	// waits says what the request waits for, of which an event will tell.
	waits string
	// done says that the template is there, with its disks.
	done     bool
	obstacle *obstacle
	result   ctrl.Result
	// gone says that the request was deleted, so that nothing can be written to it.
	gone bool
}

// obstacle is what the user has to know: why the request waits, or has failed.
type obstacle struct {
	message string
	// final says that it will never succeed; poll that no event tells of the obstacle's end.
	final, poll bool
}

// Error is for the user.
func (o *obstacle) Error() string { return o.message }

func fail(format string, args ...any) error {
	return &obstacle{message: fmt.Sprintf(format, args...), final: true}
}

func wait(format string, args ...any) error {
	return &obstacle{message: fmt.Sprintf(format, args...)}
}

func poll(format string, args ...any) error {
	return &obstacle{message: fmt.Sprintf(format, args...), poll: true}
}

// read reads what there is, past the caches; nil when the request is gone.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{request: &vmtemplatev1beta1.VirtualMachineTemplateRequest{}, now: r.now(), disks: map[string]*cdiv1.DataVolume{}}
	if found, err := r.get(ctx, key, s.request); err != nil || !found {
		return nil, err
	}
	if !held(s.request) && (ended(s.request) || s.request.DeletionTimestamp != nil) {
		return s, nil // nothing can be left
	}
	snapshot, template := &snapshotv1.VirtualMachineSnapshot{}, &vmtemplatev1beta1.VirtualMachineTemplate{}
	for into, at := range map[client.Object]client.ObjectKey{
		snapshot: {Namespace: s.request.Spec.VirtualMachineRef.Namespace, Name: snapshotName(s.request.UID)},
		template: {Namespace: key.Namespace, Name: templateName(s.request)},
	} {
		found, err := r.get(ctx, at, into)
		switch {
		case err != nil:
			return nil, err
		case !found:
		case into.GetLabels()[vmtemplatev1beta1.LabelRequest] != string(s.request.UID):
			s.foreign = into
		case into == client.Object(snapshot):
			s.snapshot = snapshot
		default:
			s.template = template
		}
	}
	return s, r.readDisks(ctx, s)
}

// readDisks reads the DataVolumes that are the request's, or its template's already.
func (r *Reconciler) readDisks(ctx context.Context, s *scope) error {
	all := &cdiv1.DataVolumeList{}
	made := client.MatchingLabels{vmtemplatev1beta1.LabelRequest: string(s.request.UID)}
	if err := r.live.List(ctx, all, client.InNamespace(s.request.Namespace), made); err != nil {
		return fmt.Errorf("listing the DataVolumes of %s: %w", s.request.Namespace, err)
	}
	for i := range all.Items {
		dv := &all.Items[i]
		if metav1.IsControlledBy(dv, s.request) || s.template != nil && metav1.IsControlledBy(dv, s.template) {
			s.disks[dv.Name] = dv
		}
	}
	return nil
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

// machineOf is the VM that the template is made of.
func machineOf(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) client.ObjectKey {
	return client.ObjectKey{Namespace: request.Spec.VirtualMachineRef.Namespace, Name: request.Spec.VirtualMachineRef.Name}
}

// held says whether something may have to be removed with request.
func held(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) bool {
	return controllerutil.ContainsFinalizer(request, vmtemplatev1beta1.FinalizerRequest)
}

// ready says whether request's template is there, with its disks.
func ready(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) bool {
	return meta.IsStatusConditionTrue(request.Status.Conditions, vmtemplatev1beta1.ConditionReady)
}

// ended says whether nothing is done any more to make request's template.
func ended(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) bool {
	return meta.IsStatusConditionFalse(request.Status.Conditions, vmtemplatev1beta1.ConditionProgressing)
}

// waitsFor says whether request waits for vm, or for something of it.
func waitsFor(request *vmtemplatev1beta1.VirtualMachineTemplateRequest, vm *virtv1.VirtualMachine) bool {
	return machineOf(request) == client.ObjectKeyFromObject(vm) && !ended(request)
}
