package stepcache

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Entry is a disk that a step left, as its DataVolume tells of it.
type Entry struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Key             Key
	State           State
	// Step says for people what the step was.
	Step string
	// Digest is the content that the disk must have. It is empty while the entry is filled.
	Digest string
	// Made is when the entry was created, Filled when the step was done, Used when a run took the entry last.
	Made, Filled, Used time.Time
	// Size is what its claim asks for, in bytes.
	Size int64
	// Class and Mode are those of its claim.
	Class       string
	Mode        corev1.PersistentVolumeMode
	AccessModes []corev1.PersistentVolumeAccessMode
	// Run is the TaskRun that made it, as namespace/name, and RunUID its uid.
	Run    string
	RunUID string
	// From is the entry of another namespace, as namespace/name, that it was brought from; empty for none.
	From string
	// Going says that it is being deleted.
	Going bool
	// InUse and Abandoned are what a sweeper found out besides: something reads the entry at the
	// moment; nobody is filling it any more.
	InUse, Abandoned bool
}

// newEntry reads an entry. ok is false for a DataVolume that is none, or whose labels contradict its annotations.
func newEntry(dv *cdiv1.DataVolume) (e Entry, ok bool) {
	e = Entry{
		Namespace: dv.Namespace, Name: dv.Name, UID: dv.UID, ResourceVersion: dv.ResourceVersion,
		Key: Key(dv.Annotations[AnnotationKey]), State: State(dv.Labels[LabelState]),
		Step: dv.Annotations[AnnotationStep], Digest: dv.Annotations[AnnotationDigest],
		Made: dv.CreationTimestamp.Time, Run: dv.Annotations[AnnotationRun], RunUID: dv.Annotations[AnnotationRunUID],
		From:  dv.Annotations[AnnotationFrom],
		Going: dv.DeletionTimestamp != nil, Mode: corev1.PersistentVolumeFilesystem,
	}
	e.Filled = ReadTime(dv, AnnotationFilled, e.Made)
	e.Used = ReadTime(dv, AnnotationUsed, e.Filled)
	if spec := dv.Spec.PVC; spec != nil {
		e.Size = spec.Resources.Requests.Storage().Value()
		e.Class = ptr.Deref(spec.StorageClassName, "")
		e.Mode = ptr.Deref(spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		e.AccessModes = spec.AccessModes
	}
	known := e.State == Filling || e.State == Ready && e.Digest != "" && dv.Status.Phase == cdiv1.Succeeded
	return e, known && e.Key != "" && e.Key.Label() == dv.Labels[LabelKey]
}

// Entries reads the entries among DataVolumes. Those that say they are entries and are not
// usable as such come as abandoned ones that are still filling.
func Entries(volumes []cdiv1.DataVolume) []Entry {
	var all []Entry
	for n := range volumes {
		if _, marked := volumes[n].Labels[LabelState]; !marked {
			continue
		}
		e, ok := newEntry(&volumes[n])
		if !ok {
			e.State, e.Abandoned = Filling, true
		}
		all = append(all, e)
	}
	return all
}

// ReadTime reads a time from an annotation of an object; or is what it is without one.
func ReadTime(object metav1.Object, annotation string, or time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, object.GetAnnotations()[annotation])
	if err != nil {
		return or
	}
	return at
}

// MarkInUse marks the entries of a namespace that are being cloned or read: by one of its
// DataVolumes, or by one of the pods with KindWorker.
func MarkInUse(entries []Entry, volumes []cdiv1.DataVolume, workers []corev1.Pod) {
	used := map[string]bool{}
	for n := range volumes {
		dv := &volumes[n]
		ended := dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed
		if source := dv.Spec.Source; !ended && source != nil && source.PVC != nil && (source.PVC.Namespace == "" || source.PVC.Namespace == dv.Namespace) {
			used[source.PVC.Name] = true
		}
	}
	for _, pod := range workers {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				used[volume.PersistentVolumeClaim.ClaimName] = true
			}
		}
	}
	for n := range entries {
		entries[n].InUse = used[entries[n].Name]
	}
}

// FilledBy reports whether the run that makes the entry is the one that holds the Lease.
func (e *Entry) FilledBy(lease *coordinationv1.Lease) bool {
	run := Run{UID: types.UID(e.RunUID)}
	run.Namespace, run.Name, _ = strings.Cut(e.Run, "/")
	return ptr.Deref(lease.Spec.HolderIdentity, "") == run.holder()
}

// FormatTime writes a time as annotations have it: in whole seconds.
func FormatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// filling is all that a new entry is built from.
type filling struct {
	key    Key
	step   string
	digest string
	// source is the claim whose disk the entry is a clone of.
	source *corev1.PersistentVolumeClaim
	run    Run
	now    time.Time
}

// buildEntry returns the DataVolume of a new entry: a clone of source, of the same class, mode and size.
func buildEntry(f filling) *cdiv1.DataVolume {
	size := f.source.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() {
		size = f.source.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: namePrefix + f.key.Short() + "-", Namespace: f.source.Namespace,
			Labels: map[string]string{
				LabelState: string(Filling), LabelKey: f.key.Label(),
				names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "step-cache",
			},
			Annotations: map[string]string{
				names.AnnotationBind: "true", names.AnnotationCollect: "false",
				AnnotationKey: string(f.key), AnnotationStep: f.step, AnnotationDigest: f.digest,
				AnnotationFilled: FormatTime(f.now), AnnotationUsed: FormatTime(f.now),
				AnnotationRun: f.run.Namespace + "/" + f.run.Name, AnnotationRunUID: string(f.run.UID),
			},
		},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: f.source.Namespace, Name: f.source.Name}},
			PVC: &corev1.PersistentVolumeClaimSpec{
				AccessModes: f.source.Spec.AccessModes, StorageClassName: f.source.Spec.StorageClassName,
				VolumeMode: f.source.Spec.VolumeMode,
				Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			},
		},
	}
	return dv
}

// Restored turns dv into a clone of the entry: it keeps its name, labels and annotations, and
// gets class, mode and size of the entry.
func Restored(dv *cdiv1.DataVolume, from *Entry) *cdiv1.DataVolume {
	clone := dv.DeepCopy()
	modes := from.AccessModes
	switch {
	case dv.Spec.PVC != nil && len(dv.Spec.PVC.AccessModes) > 0:
		modes = dv.Spec.PVC.AccessModes
	case dv.Spec.Storage != nil && len(dv.Spec.Storage.AccessModes) > 0:
		modes = dv.Spec.Storage.AccessModes
	}
	clone.Spec = cdiv1.DataVolumeSpec{
		Source:            &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: from.Namespace, Name: from.Name}},
		PriorityClassName: dv.Spec.PriorityClassName,
		PVC: &corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: new(from.Class), VolumeMode: new(from.Mode),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity(from.Size)}},
		},
	}
	if from.Class == "" {
		clone.Spec.PVC.StorageClassName = nil
	}
	return clone
}
