package virtualmachineinstance

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/population"
)

// volumeState is a VMI's volume on a claim, with the objects behind it as they are.
type volumeState struct {
	// name is the volume's name in the VMI, claim that of its claim.
	name  string
	claim string
	// fromDataVolume says that the VMI names a DataVolume, not a claim.
	fromDataVolume bool
	readOnly       bool
	// base says that the volume is an overlay, for which the claim is only read.
	base bool
	// pvc, dataVolume and class are nil while they do not exist. dataVolume is also what a populator
	// has the claim filled by where its storage would bind it before.
	pvc        *corev1.PersistentVolumeClaim
	dataVolume *cdiv1.DataVolume
	class      *storagev1.StorageClass
}

// claimOf returns the claim that volume is on, and whether it names it as a DataVolume.
func claimOf(volume virtv1.Volume) (claim string, fromDataVolume bool) {
	switch {
	case volume.DataVolume != nil:
		return volume.DataVolume.Name, true
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName, false
	case volume.Ephemeral != nil && volume.Ephemeral.PersistentVolumeClaim != nil:
		return volume.Ephemeral.PersistentVolumeClaim.ClaimName, false
	}
	return "", false
}

// lateClaimOf is claimOf for what can come while the guest runs: a claim to which its memory is to be
// dumped comes only then, and no start waits for it.
func lateClaimOf(volume virtv1.Volume) (claim string, fromDataVolume bool) {
	if volume.MemoryDump != nil {
		return volume.MemoryDump.ClaimName, false
	}
	return claimOf(volume)
}

// volumeReader reads what is behind volumes.
type volumeReader struct{ client.Reader }

// readVolumes reads the objects behind volumes of an instance in namespace.
func (r volumeReader) readVolumes(ctx context.Context, namespace string, volumes []virtv1.Volume) ([]volumeState, error) {
	var states []volumeState
	for _, volume := range volumes {
		claim, fromDataVolume := claimOf(volume)
		if claim == "" {
			continue
		}
		state := volumeState{name: volume.Name, claim: claim, fromDataVolume: fromDataVolume}
		if source := volume.PersistentVolumeClaim; source != nil {
			state.readOnly = source.ReadOnly
		}
		if volume.Ephemeral != nil {
			state.readOnly, state.base = volume.Ephemeral.PersistentVolumeClaim.ReadOnly, true
		}
		if err := r.readVolume(ctx, namespace, &state); err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	return states, nil
}

func (r volumeReader) readVolume(ctx context.Context, namespace string, state *volumeState) error {
	key := client.ObjectKey{Namespace: namespace, Name: state.claim}
	pvc := &corev1.PersistentVolumeClaim{}
	switch err := r.Get(ctx, key, pvc); {
	case err == nil:
		state.pvc = pvc
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading PersistentVolumeClaim %s: %w", key, err)
	}
	dataVolume := &cdiv1.DataVolume{}
	switch err := r.Get(ctx, key, dataVolume); {
	case err == nil && (state.fromDataVolume || pvcOf(pvc, dataVolume)):
		state.dataVolume = dataVolume
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading DataVolume %s: %w", key, err)
	}
	if err := r.readFiller(ctx, state); err != nil {
		return err
	}
	return r.readClass(ctx, state)
}

// readFiller reads what fills a claim that may be bound before it is whole.
func (r volumeReader) readFiller(ctx context.Context, state *volumeState) error {
	if state.pvc == nil || state.dataVolume != nil || !population.Unfilled(state.pvc) {
		return nil
	}
	key := client.ObjectKey{Namespace: state.pvc.Namespace, Name: population.PrimeName(state.pvc)}
	dataVolume := &cdiv1.DataVolume{}
	switch err := r.Get(ctx, key, dataVolume); {
	case err == nil:
		state.dataVolume = dataVolume
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading DataVolume %s: %w", key, err)
	}
	return nil
}

// readClass reads the StorageClass of a claim that is not bound yet.
func (r volumeReader) readClass(ctx context.Context, state *volumeState) error {
	if state.pvc == nil || state.pvc.Status.Phase == corev1.ClaimBound {
		return nil
	}
	name := ptr.Deref(state.pvc.Spec.StorageClassName, "")
	if name == "" {
		return nil
	}
	class := &storagev1.StorageClass{}
	switch err := r.Get(ctx, client.ObjectKey{Name: name}, class); {
	case err == nil:
		state.class = class
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading StorageClass %s: %w", name, err)
	}
	return nil
}

// pvcOf says whether pvc is the one that dataVolume fills.
func pvcOf(pvc *corev1.PersistentVolumeClaim, dataVolume *cdiv1.DataVolume) bool {
	return metav1.IsControlledBy(pvc, dataVolume)
}

// need is what a volume still lacks.
type need int

const (
	needNothing  need = iota
	needConsumer      // binds, or is filled, once a pod that uses it is placed
	needTime          // somebody is at work on it
	needHelp          // nothing happens until somebody changes something
)

// lack is what a volume lacks, with a reason and a sentence for the user.
type lack struct {
	need    need
	reason  string
	message string
}

// judge says what v lacks before its VMI can start.
func judge(v volumeState) lack {
	switch {
	case v.dataVolume != nil:
		return judgeDataVolume(v)
	case v.pvc == nil && v.fromDataVolume:
		return lack{needHelp, ReasonPVCNotFound, fmt.Sprintf("DataVolume %s not found", v.claim)}
	case v.pvc == nil:
		return lack{needHelp, ReasonPVCNotFound, fmt.Sprintf("PVC %s not found", v.claim)}
	}
	return judgeClaim(v)
}

func judgeDataVolume(v volumeState) lack {
	dv := v.dataVolume
	switch dv.Status.Phase {
	case cdiv1.Succeeded:
		if v.pvc == nil {
			return lack{needTime, ReasonPVCNotFound, fmt.Sprintf("PVC %s of DataVolume %s not found", v.claim, dv.Name)}
		}
		return judgeClaim(v)
	case cdiv1.Failed:
		return lack{needHelp, ReasonImportFailed, fmt.Sprintf("DataVolume %s failed%s", dv.Name, because(dv))}
	case cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation:
		return lack{needConsumer, ReasonBinding, fmt.Sprintf("DataVolume %s waits for a node to be chosen", dv.Name)}
	case cdiv1.PhaseUnset, cdiv1.Pending:
		return lack{needTime, ReasonImporting, fmt.Sprintf("DataVolume %s is pending%s", dv.Name, because(dv))}
	}
	return lack{needTime, ReasonImporting, fmt.Sprintf("%s of DataVolume %s%s%s", verb(dv.Status.Phase), dv.Name, progress(string(dv.Status.Progress)), because(dv))}
}

func verb(phase cdiv1.DataVolumePhase) string {
	if strings.Contains(string(phase), "Clone") || phase == cdiv1.RebindInProgress {
		return "clone"
	}
	return "import"
}

// progress words a DataVolume's or claim's progress, without the digits that change all the time.
func progress(text string) string {
	percent, found := strings.CutSuffix(text, "%")
	if !found {
		return ""
	}
	whole, _, _ := strings.Cut(percent, ".")
	return " at " + whole + " %"
}

// because is what the DataVolume itself says about why it does not go on.
func because(dv *cdiv1.DataVolume) string {
	for _, c := range dv.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning && c.Status != corev1.ConditionTrue && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

// judgePopulation says what a claim with a source lacks although it may be bound.
func judgePopulation(v volumeState) lack {
	source, bound := population.Source(v.pvc), v.pvc.Spec.VolumeName != ""
	switch {
	case population.Refused(v.pvc), !bound && population.Failed(v.pvc):
		return lack{needHelp, ReasonImportFailed, fmt.Sprintf("PVC %s is not filled by its %s: %s", v.claim, source, v.pvc.Annotations[population.AnnotationMessage])}
	case population.Unfilled(v.pvc):
		return lack{needTime, ReasonImporting, fmt.Sprintf("PVC %s is being filled by its %s", v.claim, source)}
	case bound && population.Undecided(v.pvc):
		return lack{needTime, ReasonImporting, fmt.Sprintf("PVC %s is not filled: its %s has yet to be looked at", v.claim, source)}
	}
	return lack{need: needNothing}
}

func judgeClaim(v volumeState) lack {
	if l := judgePopulation(v); l.need != needNothing {
		return l
	}
	switch v.pvc.Status.Phase {
	case corev1.ClaimBound:
		return lack{need: needNothing}
	case corev1.ClaimLost:
		return lack{needHelp, ReasonUnbound, fmt.Sprintf("PVC %s has lost its volume", v.claim)}
	}
	class := ptr.Deref(v.pvc.Spec.StorageClassName, "")
	switch {
	case class == "" && v.pvc.Spec.VolumeName == "":
		return lack{needHelp, ReasonUnbound, fmt.Sprintf("PVC %s is unbound: it names no StorageClass and there is no default one", v.claim)}
	case class != "" && v.class == nil:
		return lack{needHelp, ReasonUnbound, fmt.Sprintf("PVC %s is unbound: StorageClass %s does not exist", v.claim, class)}
	case population.Undecided(v.pvc):
		return lack{needTime, ReasonUnbound, fmt.Sprintf("PVC %s is unbound: its %s has yet to be looked at", v.claim, population.Source(v.pvc))}
	case v.class != nil && ptr.Deref(v.class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer:
		return lack{need: needNothing}
	case population.Chosen(v.pvc) && v.pvc.Spec.VolumeName == "":
		return lack{needTime, ReasonImporting, fmt.Sprintf("PVC %s is being filled by its %s%s", v.claim, population.Source(v.pvc), progress(v.pvc.Annotations[population.AnnotationProgress]))}
	}
	return lack{needTime, ReasonUnbound, fmt.Sprintf("PVC %s is unbound: waiting for %s", v.claim, provisionerOf(v))}
}

func provisionerOf(v volumeState) string {
	if v.class != nil {
		return fmt.Sprintf("provisioner %s of StorageClass %s", v.class.Provisioner, v.class.Name)
	}
	return "volume " + v.pvc.Spec.VolumeName
}

// claims are what the pods mount.
func claims(states []volumeState) map[string]pod.Claim {
	all := map[string]pod.Claim{}
	for _, v := range states {
		claim := pod.Claim{Name: v.claim, ReadOnly: v.readOnly, Base: v.base}
		if v.pvc != nil {
			claim.Block = ptr.Deref(v.pvc.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
		}
		all[v.name] = claim
	}
	return all
}
