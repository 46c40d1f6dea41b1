package volumemigration

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Reasons of the VM's conditions VolumesChange and ManualRecoveryRequired.
const (
	ReasonRunning       = "VirtualMachineRunning"
	ReasonSourceMissing = "SourceNotFound"
	ReasonSourceUnbound = "SourceNotBound"
	ReasonTargetMissing = "DestinationNotFound"
	ReasonTargetUnfit   = "DestinationNotWritable"
	ReasonTooSmall      = "DestinationTooSmall"
	ReasonFilling       = "DestinationNotReady"
	ReasonInUse         = "VolumeInUse"
	ReasonBegins        = "CopyBegins"
	ReasonScheduling    = "CopyScheduled"
	ReasonCopying       = "Copying"
	ReasonRetrying      = "CopyRetried"
	ReasonFailed        = "CopyFailed"
	ReasonCopied        = "Copied"
)

// Facts are what there is of a move, read past the cache: a pod or a record that is not seen would mean a second copy.
type Facts struct {
	VM   *virtv1.VirtualMachine
	Move Move
	// Running says that the VM has an instance that has not ended.
	Running bool
	// Source and Target are the claims, DataVolume the one of the target's name; nil where there is none.
	Source, Target *corev1.PersistentVolumeClaim
	DataVolume     *cdiv1.DataVolume
	// Pods are those of the namespace.
	Pods []corev1.Pod
	// Progress is what the pod that copies says of itself.
	Progress transfer.Progress
}

// Act is what is to be done next for a move.
type Act int

// Acts.
const (
	Wait   Act = iota // for what only takes time
	Help              // for what somebody must mend
	Bind              // make the pod by which the target gets bound
	Copy              // make the pod that copies
	Stop              // delete Verdict.Pod
	Finish            // write onto the target that it has the disk
	Done              // nothing: it is written
)

// Verdict is an act, with its reason in a word and in a sentence.
type Verdict struct {
	Act             Act
	Reason, Message string
	// Pod is the one to delete, or the one that copies; Result that of the copy which is to be recorded.
	Pod    *corev1.Pod
	Result transfer.Result
}

// Judge says what is to be done next. Every act can be repeated, and what is read after it leads on.
func Judge(f Facts) Verdict {
	if f.Target != nil && f.Move.done(RecordOf(f.Target.Annotations), f.VM.UID) {
		return Verdict{Act: Done, Reason: ReasonCopied, Message: fmt.Sprintf("volume %s was copied from PVC %s to PVC %s", f.Move.Volume, f.Move.From, f.Move.To)}
	}
	pod := f.Copier()
	if pod != nil && pod.Labels[virtv1.CreatedByLabel] != string(f.VM.UID) {
		return f.wait(Wait, ReasonInUse, "pod %s, which is not this VirtualMachine's, fills PVC %s; the copy begins once it is gone", pod.Name, f.Move.To)
	}
	verdict := f.judgeClaims(pod)
	if verdict == nil {
		verdict = f.judgeUsers(pod)
	}
	switch {
	case pod != nil && pod.DeletionTimestamp != nil:
		return f.wait(Wait, ReasonBegins, "pod %s, whose copy is of no use, is being stopped; the copy begins anew once it is gone", pod.Name)
	case pod != nil && (verdict != nil || !f.sameCopy(pod) || pod.Status.Phase == corev1.PodFailed):
		stop := Verdict{Act: Stop, Pod: pod, Reason: ReasonBegins, Message: f.sentence("pod %s is stopped; the copy begins anew", pod.Name)}
		if verdict != nil {
			stop.Reason, stop.Message = verdict.Reason, verdict.Message
		}
		return stop
	case verdict != nil:
		return *verdict
	case pod == nil:
		return f.wait(Copy, ReasonBegins, "the copy begins")
	}
	return f.judgePod(pod)
}

// judgeClaims says what of the two claims keeps the copy from beginning; nil for nothing. A source that is deleted stays for as long as
// copier has it, whose copy is the last that there will be of it.
func (f Facts) judgeClaims(copier *corev1.Pod) *Verdict {
	source, target := f.Source, f.Target
	from, to := f.Move.From, f.Move.To
	const back = "or change the volume back"
	switch {
	case f.Running:
		return f.because(Wait, ReasonRunning, "the copy begins once the VirtualMachine has stopped")
	case source == nil || source.DeletionTimestamp != nil && copier == nil:
		return f.because(Help, ReasonSourceMissing, "PVC %s, which has the disk, does not exist or is being deleted; bring it back, or change the volume to the claim that has the disk", from)
	case source.Status.Phase != corev1.ClaimBound:
		return f.because(Help, ReasonSourceUnbound, "PVC %s has no volume, so there is no disk to copy; change the volume back to it", from)
	case target == nil || target.DeletionTimestamp != nil:
		return f.because(Wait, ReasonTargetMissing, "PVC %s does not exist yet; create it, %s", to, back)
	case target.Status.Phase == corev1.ClaimLost:
		return f.because(Help, ReasonTargetMissing, "PVC %s has lost its volume; replace it, %s", to, back)
	case datavolume.ReadOnly(target):
		return f.because(Help, ReasonTargetUnfit, "PVC %s can only be read; take one that can be written to, %s", to, back)
	}
	if verdict := f.judgeFilling(); verdict != nil {
		return verdict
	}
	have, need := sizeOf(target), source.Status.Capacity.Storage()
	if datavolume.VolumeMode(source) == corev1.PersistentVolumeBlock && have.Cmp(*need) < 0 { // of a disk in a file the pod finds its size
		return f.because(Help, ReasonTooSmall, "PVC %s has %s, the disk of PVC %s is %s; expand it, %s", to, have, from, need, back)
	}
	return nil
}

// judgeFilling waits for whoever fills the target: it would write over what was copied. Where that waits for a consumer, a pod is
// made which is one; storage that makes volumes where they are used has the copy itself as the consumer of an empty claim.
func (f Facts) judgeFilling() *Verdict {
	target, to := f.Target, f.Move.To
	late := population.Awaited(target)
	if f.DataVolume != nil {
		switch f.DataVolume.Status.Phase {
		case cdiv1.Succeeded:
			return nil
		case cdiv1.Failed:
			return f.because(Help, ReasonFilling, "DataVolume %s has failed; replace it, or change the volume back", to)
		}
		late = true
	}
	if !late {
		return nil
	}
	binder := f.pod(BinderName(to))
	waits := f.DataVolume == nil || f.DataVolume.Status.Phase == cdiv1.WaitForFirstConsumer || f.DataVolume.Status.Phase == cdiv1.PendingPopulation
	if target.Status.Phase == corev1.ClaimPending && waits && binder == nil {
		return f.because(Bind, ReasonFilling, "PVC %s waits for a consumer", to)
	}
	if binder != nil {
		if why := unschedulable(binder); why != "" {
			return f.because(Help, ReasonScheduling, "no node can have both PVC %s and PVC %s: %s", f.Move.From, to, why)
		}
	}
	return f.because(Wait, ReasonFilling, "PVC %s is being prepared; the copy begins once that is done", to)
}

// judgeUsers names a pod in whose way the copy would be, or was while copier copied. What may write to the source would leave a disk
// of two moments, and whatever has the target may not see it change.
func (f Facts) judgeUsers(copier *corev1.Pod) *Verdict {
	for n := range f.Pods {
		pod := &f.Pods[n]
		own := pod.Labels[names.LabelPod] == KindPod && pod.Labels[virtv1.CreatedByLabel] == string(f.VM.UID)
		if own || !datavolume.Overlaps(pod, copier) {
			continue
		}
		switch {
		case datavolume.MayWrite(pod, f.Move.From):
			return f.because(Wait, ReasonInUse, "pod %s uses PVC %s; it is copied once the pod has ended", pod.Name, f.Move.From)
		case datavolume.Has(pod, f.Move.To):
			return f.because(Wait, ReasonInUse, "pod %s uses PVC %s; the copy begins once the pod has ended", pod.Name, f.Move.To)
		}
	}
	return nil
}

// judgePod says how far the pod is that copies.
func (f Facts) judgePod(pod *corev1.Pod) Verdict {
	last := datavolume.LastResult(pod)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded && last != nil && last.Reason == "":
		return Verdict{Act: Finish, Result: *last, Pod: pod, Reason: ReasonCopied, Message: f.sentence("it is done")}
	case last != nil && last.Reason != "" && last.Retryable:
		return f.wait(Wait, ReasonRetrying, "%s; it is tried again", datavolume.FailureText(*last))
	case last != nil && last.Reason != "":
		return f.wait(Help, ReasonFailed, "%s; it is tried again from time to time: mend that, or change the volume back to PVC %s, which is as it was",
			datavolume.FailureText(*last), f.Move.From)
	case pod.Status.Phase == corev1.PodRunning:
		verdict := f.wait(Wait, ReasonCopying, "pod %s copies it since %s%s", pod.Name, startOf(pod).UTC().Format(time.RFC3339), f.soFar())
		verdict.Pod = pod
		return verdict
	}
	if why := unschedulable(pod); why != "" {
		return f.wait(Help, ReasonScheduling, "no node can have both claims: %s", why)
	}
	return f.wait(Wait, ReasonScheduling, "pod %s is being started", pod.Name)
}

// soFar is how much of it is done, nothing as long as the pod has not said that.
func (f Facts) soFar() string {
	if f.Progress.Total <= 0 {
		return ""
	}
	return ", " + f.Progress.Percent() + " so far"
}

// sameCopy reports whether pod makes the copy that is asked for, from the very claim that there is.
func (f Facts) sameCopy(pod *corev1.Pod) bool {
	record := RecordOf(pod.Annotations)
	return f.Source != nil && record != nil && *record == f.Move.record(f.VM.UID, f.Source)
}

// Copier is the pod of the move's copy; nil where there is none.
func (f Facts) Copier() *corev1.Pod { return f.pod(PodName(f.Move.To)) }

func (f Facts) pod(name string) *corev1.Pod {
	for n := range f.Pods {
		if f.Pods[n].Name == name {
			return &f.Pods[n]
		}
	}
	return nil
}

// sentence says which volume is meant, and then the rest.
func (f Facts) sentence(format string, args ...any) string {
	return fmt.Sprintf("volume %s, from PVC %s to PVC %s: ", f.Move.Volume, f.Move.From, f.Move.To) + fmt.Sprintf(format, args...)
}

func (f Facts) wait(act Act, reason, format string, args ...any) Verdict {
	return Verdict{Act: act, Reason: reason, Message: f.sentence(format, args...)}
}

func (f Facts) because(act Act, reason, format string, args ...any) *Verdict {
	return new(f.wait(act, reason, format, args...))
}

// unschedulable is why no node takes pod, "" when one does, or none was looked for yet.
func unschedulable(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func startOf(pod *corev1.Pod) time.Time {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running != nil {
			return status.State.Running.StartedAt.Time
		}
	}
	return pod.CreationTimestamp.Time
}
