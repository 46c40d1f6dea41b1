package virtualmachine

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// A VM whose volumes were changed under updateVolumesStrategy Migration has a note of virt-api's, package volumemigration. Until
// that is off it does not start. Each volume's disk is copied by a pod; that it was is written onto the new claim, which is
// what ends a copy; then the pod goes; once all are copied the note goes. What is done twice is found done, so it
// matters nowhere where a controller ends.

// migrationRetry is when it is looked again for what nothing wakes: claims, and pods of others.
const migrationRetry = 5 * time.Second

// migration is how the copies of a VM's volumes stand in a pass.
type migration struct {
	infos    []virtv1.StorageMigratedVolumeInfo
	verdicts []volumemigration.Verdict
}

// find is the first verdict of an act, nil when there is none.
func (m *migration) find(act volumemigration.Act) *volumemigration.Verdict {
	for n := range m.verdicts {
		if m.verdicts[n].Act == act {
			return &m.verdicts[n]
		}
	}
	return nil
}

// done says whether everything is copied.
func (m *migration) done() bool {
	for _, verdict := range m.verdicts {
		if verdict.Act != volumemigration.Done {
			return false
		}
	}
	return true
}

// copying are the pods that copy.
func (m *migration) copying() (pods []*corev1.Pod) {
	for _, verdict := range m.verdicts {
		if verdict.Reason == volumemigration.ReasonCopying {
			pods = append(pods, verdict.Pod)
		}
	}
	return pods
}

// migrateVolumes copies what the VM's note asks for, and takes the note off once that is done.
func (r *Reconciler) migrateVolumes(ctx context.Context, s *scope) error {
	pending := volumemigration.Pending(s.vm)
	if !pending {
		r.copies.Stop(client.ObjectKeyFromObject(s.vm))
	}
	if s.vm.Status.RestoreInProgress != nil {
		return nil
	}
	moves, err := volumemigration.Moves(s.vm)
	if err != nil {
		return err
	}
	if pending {
		if err := r.checkFresh(ctx, s); err != nil {
			return err
		}
	}
	if err := r.endStrays(ctx, s, moves); err != nil || !pending {
		return err
	}
	if s.migration == nil {
		s.migration = &migration{}
	}
	for _, move := range moves {
		facts, err := r.migrationFacts(ctx, s, move)
		if err != nil {
			return err
		}
		verdict := volumemigration.Judge(facts)
		s.migration.infos = append(s.migration.infos, volumemigration.Info(facts))
		if err := r.act(ctx, s, facts, &verdict); err != nil {
			return err
		}
		s.migration.verdicts = append(s.migration.verdicts, verdict)
	}
	r.copies.Follow(client.ObjectKeyFromObject(s.vm), s.migration.copying()...)
	if s.migration.done() {
		return r.forgetNote(ctx, s)
	}
	s.requeueAfter(migrationRetry)
	r.tellMigration(s)
	return nil
}

// checkFresh ends a pass that the cache has shown a VM with another note than it has: what that asks for may be done, and
// the VM running on what would be written over.
func (r *Reconciler) checkFresh(ctx context.Context, s *scope) error {
	fresh := &virtv1.VirtualMachine{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(s.vm), fresh)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VirtualMachine %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	note := volumemigration.AnnotationNote
	if err != nil || fresh.UID != s.vm.UID || fresh.DeletionTimestamp != nil || fresh.Annotations[note] != s.vm.Annotations[note] {
		s.requeueAfter(time.Second)
		return steps.ErrDone
	}
	return nil
}

// endStrays deletes the VM's pods whose copy is not asked for any more, and lets it wait for those that may still write. A VM that
// says nothing of copies has had none for long, so that the cache knows.
func (r *Reconciler) endStrays(ctx context.Context, s *scope, moves []volumemigration.Move) error {
	var reader client.Reader = r
	if len(moves) > 0 || s.vm.Status.VolumeUpdateState != nil {
		reader = r.live
	}
	pods := &corev1.PodList{}
	err := reader.List(ctx, pods, client.InNamespace(s.vm.Namespace), client.MatchingLabels{
		names.LabelPod: volumemigration.KindPod, virtv1.CreatedByLabel: string(s.vm.UID),
	})
	if err != nil {
		return fmt.Errorf("listing the pods that copy volumes of VirtualMachine %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	for n := range pods.Items {
		pod := &pods.Items[n]
		if ofMoves(moves, pod) {
			continue
		}
		if err := r.deletePod(ctx, pod); err != nil {
			return err
		}
		if ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; ended {
			continue
		}
		s.migration = &migration{verdicts: []volumemigration.Verdict{{
			Act: volumemigration.Wait, Reason: volumemigration.ReasonBegins,
			Message: fmt.Sprintf("pod %s copies what is not asked for any more; waiting until it has ended", pod.Name),
		}}}
		s.requeueAfter(migrationRetry)
	}
	return nil
}

// ofMoves says whether pod has the name of one that a move has. Whether it makes the very copy is seen there.
func ofMoves(moves []volumemigration.Move, pod *corev1.Pod) bool {
	for _, move := range moves {
		if pod.Name == volumemigration.PodName(move.To) || pod.Name == volumemigration.BinderName(move.To) {
			return true
		}
	}
	return false
}

// migrationFacts reads what there is of a move, past the cache.
func (r *Reconciler) migrationFacts(ctx context.Context, s *scope, move volumemigration.Move) (volumemigration.Facts, error) {
	f := volumemigration.Facts{VM: s.vm, Move: move, Running: s.vmi != nil && !s.vmi.IsFinal()}
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: s.vm.Namespace, Name: name} }
	instance := &virtv1.VirtualMachineInstance{}
	there, err := r.seen(ctx, key(s.vm.Name), instance)
	if err != nil {
		return f, err
	}
	f.Running = f.Running || there && !instance.IsFinal()
	for name, into := range map[string]**corev1.PersistentVolumeClaim{move.From: &f.Source, move.To: &f.Target} {
		claim := &corev1.PersistentVolumeClaim{}
		if there, err = r.seen(ctx, key(name), claim); err != nil {
			return f, err
		}
		if there {
			*into = claim
		}
	}
	dv := &cdiv1.DataVolume{}
	if there, err = r.seen(ctx, key(move.To), dv); err != nil {
		return f, err
	}
	if there {
		f.DataVolume = dv
	}
	pods := &corev1.PodList{}
	if err := r.live.List(ctx, pods, client.InNamespace(s.vm.Namespace)); err != nil {
		return f, fmt.Errorf("looking for pods that use claims %s and %s: %w", move.From, move.To, err)
	}
	f.Pods = pods.Items
	f.Progress, _ = r.copies.Latest(client.ObjectKeyFromObject(s.vm), f.Copier())
	return f, nil
}

// seen reads an object past the cache, and says whether it is there.
func (r *Reconciler) seen(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := r.live.Get(ctx, key, into)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return err == nil, nil
}

// act does what verdict says, and makes verdict what is so then.
func (r *Reconciler) act(ctx context.Context, s *scope, f volumemigration.Facts, verdict *volumemigration.Verdict) error {
	if verdict.Reason != volumemigration.ReasonFilling {
		if err := r.deleteNamed(ctx, f, volumemigration.BinderName(f.Move.To)); err != nil {
			return err
		}
	}
	switch verdict.Act {
	case volumemigration.Bind:
		return r.createCopier(ctx, f, true)
	case volumemigration.Copy:
		if err := r.clearTarget(ctx, f); err != nil {
			return err
		}
		return r.createCopier(ctx, f, false)
	case volumemigration.Stop:
		return r.deletePod(ctx, verdict.Pod)
	case volumemigration.Finish:
		if err := r.recordCopy(ctx, f, verdict); err != nil {
			return err
		}
		verdict.Act = volumemigration.Done
		r.normal(s.vm, reasonMigrated, "Copied volume %s from PersistentVolumeClaim %s to PersistentVolumeClaim %s", f.Move.Volume, f.Move.From, f.Move.To)
		return r.deletePod(ctx, verdict.Pod)
	case volumemigration.Done:
		return r.deleteNamed(ctx, f, volumemigration.PodName(f.Move.To))
	}
	return nil
}

// createCopier makes the pod that copies, or the one by which the target gets bound. One that is there already is seen in the next pass.
func (r *Reconciler) createCopier(ctx context.Context, f volumemigration.Facts, binder bool) error {
	cdi, err := cdiconfig.Installed(ctx, r.Client)
	if err != nil {
		return err
	}
	config := &cdiv1.CDIConfig{}
	if err := r.Get(ctx, client.ObjectKey{Name: names.CDIConfigName}, config); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading CDIConfig %s: %w", names.CDIConfigName, err)
	}
	pod, err := volumemigration.Pod(volumemigration.PodInput{
		VM: f.VM, Move: f.Move, Source: f.Source, Target: f.Target, Binder: binder,
		Image: r.options.CopyImage, Token: rand.Text(), Workload: cdiconfig.WorkloadOf(cdi), Resources: datavolume.PodResources(config.Status),
	})
	if err != nil {
		return err
	}
	err = r.Create(ctx, pod, client.FieldOwner(names.ManagerController))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating pod %s/%s, which copies volume %s: %w", pod.Namespace, pod.Name, f.Move.Volume, err)
	}
	return nil
}

// clearTarget takes off the target what is said of the disk that it has now and will not have.
func (r *Reconciler) clearTarget(ctx context.Context, f volumemigration.Facts) error {
	return r.annotateTarget(ctx, f, map[string]string{volumemigration.AnnotationRecord: "", names.AnnotationDigest: ""})
}

// recordCopy writes onto the target that it has the disk, and the content's name.
func (r *Reconciler) recordCopy(ctx context.Context, f volumemigration.Facts, verdict *volumemigration.Verdict) error {
	return r.annotateTarget(ctx, f, map[string]string{
		volumemigration.AnnotationRecord: verdict.Pod.Annotations[volumemigration.AnnotationRecord],
		names.AnnotationDigest:           verdict.Result.Digest,
	})
}

// annotateTarget changes annotations of the target as it was read; empty ones go.
func (r *Reconciler) annotateTarget(ctx context.Context, f volumemigration.Facts, notes map[string]string) error {
	changed, differs := f.Target.DeepCopy(), false
	for name, value := range notes {
		switch {
		case f.Target.Annotations[name] == value:
			continue
		case value == "":
			delete(changed.Annotations, name)
		case changed.Annotations == nil:
			changed.Annotations = map[string]string{name: value}
		default:
			changed.Annotations[name] = value
		}
		differs = true
	}
	if !differs {
		return nil
	}
	patch := client.MergeFromWithOptions(f.Target, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("writing annotations of PersistentVolumeClaim %s/%s, which volume %s is copied to: %w", changed.Namespace, changed.Name, f.Move.Volume, err)
	}
	return nil
}

// deleteNamed deletes the VM's pod of the name, if there is one.
func (r *Reconciler) deleteNamed(ctx context.Context, f volumemigration.Facts, name string) error {
	for n := range f.Pods {
		pod := &f.Pods[n]
		if pod.Name == name && pod.Labels[virtv1.CreatedByLabel] == string(f.VM.UID) {
			return r.deletePod(ctx, pod)
		}
	}
	return nil
}

func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	err := r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// forgetNote takes the note off the VM, which may start then.
func (r *Reconciler) forgetNote(ctx context.Context, s *scope) error {
	changed := s.vm.DeepCopy()
	delete(changed.Annotations, volumemigration.AnnotationNote)
	patch := client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("taking annotation %s off VirtualMachine %s/%s: %w", volumemigration.AnnotationNote, s.vm.Namespace, s.vm.Name, err)
	}
	if volumemigration.Pending(changed) { // a VM that is noted never runs
		return fmt.Errorf("taking annotation %s off VirtualMachine %s/%s: virt-api has kept it, which lets only virt-controller of its own namespace do that; run both in one",
			volumemigration.AnnotationNote, s.vm.Namespace, s.vm.Name)
	}
	s.vm, s.migration = changed, nil
	return nil
}
