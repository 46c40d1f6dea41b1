package virtualmachine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance"
)

// scope is what one pass over a VM knows and decides.
type scope struct {
	vm  *virtv1.VirtualMachine
	now time.Time
	// vmi is the VM's instance; nil when there is none.
	vmi *virtv1.VirtualMachineInstance
	// orphan is the instance that an earlier VM of the name left running; adopt makes it the VM's.
	orphan *virtv1.VirtualMachineInstance
	// strategy is the VM's run strategy; strategyError says why there is none.
	strategy      strategy
	strategyError error
	// dataVolumes are those of the VM's templates that exist, by name.
	dataVolumes map[string]*cdiv1.DataVolume
	// requests is what is left to do of the requests in the VM's status; readRequests finds it.
	requests []virtv1.VirtualMachineStateChangeRequest
	// startFailure is set by noteFailedStart.
	startFailure *virtv1.VirtualMachineStartFailure
	// restart says why the running VMI cannot take up what the VM says now; set by followChanges.
	restart string
	// instancetype and preference are what the VM has, as the status keeps it; set by start and followChanges.
	instancetype, preference instancetype.Reference
	// foreseen is what the VM's volumes lack while it has no instance, and unstartable why none could be made; foresee sets them.
	foreseen    []virtualmachineinstance.Lack
	unstartable error
	// migration is how the copies of changed volumes stand; nil when there are none, so that the VM may start. migrateVolumes sets it.
	migration *migration
	// tracking is whether it is recorded what is written to the VM's disks; trackChanges sets it.
	tracking virtv1.ChangedBlockTrackingState
	// failure is the error that ended the pass.
	failure error
	// renamed is the VM that takes this one's place; nil until it is there. findRenamed and createRenamed set it.
	renamed *virtv1.VirtualMachine
	// gone says that the VM's finalizer was removed, so nothing can be written to it.
	gone   bool
	result ctrl.Result
}

func (r *Reconciler) newScope(ctx context.Context, vm *virtv1.VirtualMachine) (*scope, error) {
	s := &scope{
		vm: vm, now: r.now(),
		dataVolumes:  map[string]*cdiv1.DataVolume{},
		requests:     vm.Status.StateChangeRequests,
		startFailure: vm.Status.StartFailure,
		instancetype: referenceOf(vm.Status.InstancetypeRef),
		preference:   referenceOf(vm.Status.PreferenceRef),
	}
	if vm.Status.ChangedBlockTracking != nil {
		s.tracking = vm.Status.ChangedBlockTracking.State
	}
	s.strategy, s.strategyError = strategyOf(vm)
	vmi := &virtv1.VirtualMachineInstance{}
	err := r.Get(ctx, client.ObjectKeyFromObject(vm), vmi)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("reading VirtualMachineInstance %s/%s: %w", vm.Namespace, vm.Name, err)
	case metav1.IsControlledBy(vmi, vm):
		s.vmi = vmi
	case isOrphan(vmi) && vm.DeletionTimestamp == nil:
		s.orphan = vmi
	default:
		s.failure = fmt.Errorf("VirtualMachineInstance %s exists and is not this VirtualMachine's; delete it, or rename one of them", vmi.Name)
	}
	if s.vmi == nil {
		s.forgetUnasked()
	}
	for _, template := range vm.Spec.DataVolumeTemplates {
		dv := &cdiv1.DataVolume{}
		err := r.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: template.Name}, dv)
		if err == nil {
			s.dataVolumes[template.Name] = dv
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading DataVolume %s/%s: %w", vm.Namespace, template.Name, err)
		}
	}
	return s, nil
}

func referenceOf(ref *virtv1.InstancetypeStatusRef) instancetype.Reference {
	if ref == nil {
		return instancetype.Reference{}
	}
	found := instancetype.Reference{Kind: ref.Kind, Name: ref.Name, InferredFrom: ref.InferFromVolume}
	if ref.ControllerRevisionRef != nil {
		found.Revision = ref.ControllerRevisionRef.Name
	}
	return found
}

// forgetUnasked drops what the VM does not ask for any more. A VM that runs has it until it is restarted, or takes up the change.
func (s *scope) forgetUnasked() {
	if m, was := s.vm.Spec.Instancetype, s.vm.Status.InstancetypeRef; m != nil && was != nil && !instancetype.StillAsked(m, was) {
		s.instancetype = instancetype.Reference{}
	}
	if m, was := s.vm.Spec.Preference, s.vm.Status.PreferenceRef; m != nil && was != nil && !instancetype.StillAsked(m, was) {
		s.preference = instancetype.Reference{}
	}
}

// requeueAfter asks for another pass after d, or sooner when one was asked for.
func (s *scope) requeueAfter(d time.Duration) {
	if s.result.RequeueAfter == 0 || d < s.result.RequeueAfter {
		s.result.RequeueAfter = max(d, time.Millisecond)
	}
}
