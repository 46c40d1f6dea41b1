package virtualmachine

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/names"
)

// followChanges compares the VM with what its instance was made from. What the running
// guest can take up is handed to the instance; for the rest the VM says that it must be
// restarted. A change that is taken back, or says the same in other words, leaves no trace.
func (r *Reconciler) followChanges(ctx context.Context, s *scope) error {
	if s.vmi == nil || s.vmi.IsFinal() || s.vmi.DeletionTimestamp != nil || s.vm.Spec.Template == nil {
		return nil
	}
	if !Outdated(s.vm, s.vmi) {
		s.restart = refusedByNode(s.vmi)
		return r.keepNamed(ctx, s)
	}
	change, is, err := r.compare(ctx, s)
	if err != nil {
		return err
	}
	s.restart = change.restart
	if change.wait || change.restart != "" {
		return nil
	}
	if err := r.keepParts(ctx, s, is); err != nil {
		return err
	}
	return r.handOver(ctx, s, change)
}

// compare finds out what a change of the VM means for its running instance, and returns what the VM is made from now.
func (r *Reconciler) compare(ctx context.Context, s *scope) (change, parts, error) {
	config, err := r.readSettings(ctx)
	if err != nil {
		return change{}, parts{}, err
	}
	started, err := r.startedWith(ctx, s)
	if err != nil {
		return change{}, parts{}, err
	}
	if started == nil {
		return change{restart: messageRestartNeeded}, parts{}, nil
	}
	was, _, errWas := r.expanded(ctx, started, config.cluster)
	is, p, errIs := r.expanded(ctx, s.vm, config.cluster)
	if errWas != nil || errIs != nil {
		// What an instance type means cannot be told now. The start will say why.
		was, is := &started.Spec, &s.vm.Spec
		if equality.Semantic.DeepEqual(was.Template.Spec, is.Template.Spec) && equality.Semantic.DeepEqual(was.Instancetype, is.Instancetype) &&
			equality.Semantic.DeepEqual(was.Preference, is.Preference) {
			return change{wait: true}, parts{}, nil
		}
		return change{restart: messageRestartNeeded}, parts{}, nil
	}
	return changeOf(comparison{was: was, is: is, vmi: s.vmi, stage: config.stage}), p, nil
}

// expanded is the spec of the instance that vm would be started with in the cluster, complete but for what
// only a start decides, and what it is made from.
func (r *Reconciler) expanded(ctx context.Context, vm *virtv1.VirtualMachine, cluster defaults.Cluster) (*virtv1.VirtualMachineInstanceSpec, parts, error) {
	p, err := r.parts(ctx, vm)
	if err != nil {
		return nil, p, err
	}
	vmi, err := instance(p)
	if err != nil {
		return nil, p, err
	}
	defaults.Set(vmi, cluster)
	return &vmi.Spec, p, nil
}

// handOver writes to the instance what its guest is to take up, and that it is by now what
// the VM says.
func (r *Reconciler) handOver(ctx context.Context, s *scope, c change) error {
	digest, err := templateDigest(s.vm)
	if err != nil {
		return err
	}
	changed := s.vmi.DeepCopy()
	changed.Annotations[AnnotationTemplate] = digest
	changed.Annotations[virtv1.VirtualMachineGenerationAnnotation] = strconv.FormatInt(s.vm.Generation, 10)
	c.apply(&changed.Spec)
	patch := client.MergeFromWithOptions(s.vmi, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return changeError(s, err)
	}
	s.vmi = changed
	s.restart = refusedByNode(s.vmi)
	return nil
}

// refusedByNode says why the instance's guest did not get what the VM has by now, "" when
// nothing stands in the way.
func refusedByNode(vmi *virtv1.VirtualMachineInstance) string {
	for _, kind := range []virtv1.VirtualMachineInstanceConditionType{
		virtv1.VirtualMachineInstanceVCPUChange, virtv1.VirtualMachineInstanceMemoryChange,
	} {
		if c := vmiCondition(vmi, kind); c != nil && c.Status == corev1.ConditionFalse {
			return "the guest could not be changed while it runs: " + c.Message
		}
	}
	return ""
}
