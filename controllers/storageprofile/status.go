package storageprofile

import (
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Annotations of the field.
const (
	// annotationCloneStrategy on a StorageClass says how its volumes are cloned.
	annotationCloneStrategy = "cdi.kubevirt.io/clone-strategy"
	// annotationDefaultSnapshot marks the class of snapshots that name none.
	annotationDefaultSnapshot = "snapshot.storage.kubernetes.io/is-default-class"
	// AnnotationMinimumSize on a StorageProfile is the least size that a claim of the class asks for.
	AnnotationMinimumSize = "cdi.kubevirt.io/minimumSupportedPvcSize"
)

// noProvisioner is the provisioner of classes whose volumes somebody makes by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// Reasons of the condition Recognized.
const (
	reasonRecognized   = "RecognizedProvisioner"
	reasonUnrecognized = "UnrecognizedProvisioner"
)

// facts are all that a profile's status is computed from.
type facts struct {
	class *storagev1.StorageClass
	// spec is what somebody has set, before was the status.
	spec   cdiv1.StorageProfileSpec
	before cdiv1.StorageProfileStatus
	// known is what the table has of the class, nil when it has nothing.
	known *knowledge
	// snapshots are the cluster's snapshot classes, volumes those of a class that nobody provisions.
	snapshots []snapshotv1.VolumeSnapshotClass
	volumes   []corev1.PersistentVolume
	now       metav1.Time
}

// newStatus computes a profile's status: what its spec says, else what is known of the provisioner.
func newStatus(f facts) cdiv1.StorageProfileStatus {
	status := cdiv1.StorageProfileStatus{
		StorageClass: new(f.class.Name), Provisioner: new(f.class.Provisioner),
		SnapshotClass:     snapshotClass(f),
		ClaimPropertySets: f.spec.ClaimPropertySets,
	}
	found := claimPropertySets(f)
	if len(status.ClaimPropertySets) == 0 {
		status.ClaimPropertySets = found
	}
	status.CloneStrategy = new(cloneStrategy(f, status.SnapshotClass != nil))
	status.DataImportCronSourceFormat = new(sourceFormat(f, status.SnapshotClass != nil))
	status.Conditions = []cdiv1.StorageProfileCondition{recognized(f, len(found) > 0)}
	return status
}

// claimPropertySets are what is known of the class's volumes: from the table, or from the volumes themselves.
func claimPropertySets(f facts) []cdiv1.ClaimPropertySet {
	if f.known != nil {
		return f.known.sets
	}
	var sets []cdiv1.ClaimPropertySet
	for i := range f.volumes {
		mode := ptr.Deref(f.volumes[i].Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		for _, access := range f.volumes[i].Spec.AccessModes {
			if !has(sets, access, mode) {
				sets = append(sets, cdiv1.ClaimPropertySet{AccessModes: []corev1.PersistentVolumeAccessMode{access}, VolumeMode: new(mode)})
			}
		}
	}
	slices.SortFunc(sets, func(a, b cdiv1.ClaimPropertySet) int {
		return strings.Compare(string(a.AccessModes[0])+string(*a.VolumeMode), string(b.AccessModes[0])+string(*b.VolumeMode))
	})
	return sets[:min(len(sets), maxSets)]
}

// maxSets is how many sets a profile's schema allows.
const maxSets = 8

func has(sets []cdiv1.ClaimPropertySet, access corev1.PersistentVolumeAccessMode, mode corev1.PersistentVolumeMode) bool {
	return slices.ContainsFunc(sets, func(s cdiv1.ClaimPropertySet) bool { return s.AccessModes[0] == access && *s.VolumeMode == mode })
}

// snapshotClass is the class for snapshots of such volumes: the one that is asked for, else the driver's default, else its
// first by name; nil when there is none, or the one that is asked for is not the provisioner's.
func snapshotClass(f facts) *string {
	var ofDriver []snapshotv1.VolumeSnapshotClass
	asked := ptr.Deref(f.spec.SnapshotClass, "")
	for _, class := range f.snapshots {
		if class.Driver == f.class.Provisioner && (asked == "" || class.Name == asked) {
			ofDriver = append(ofDriver, class)
		}
	}
	if len(ofDriver) == 0 {
		return nil
	}
	slices.SortFunc(ofDriver, func(a, b snapshotv1.VolumeSnapshotClass) int {
		if isDefault(&a) != isDefault(&b) {
			if isDefault(&a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return new(ofDriver[0].Name)
}

func isDefault(class *snapshotv1.VolumeSnapshotClass) bool {
	return class.Annotations[annotationDefaultSnapshot] == "true"
}

// NoSnapshotClass says why a profile has no class of snapshots, and what to do; it goes into a sentence.
func NoSnapshotClass(profile *cdiv1.StorageProfile) string {
	driver := ptr.Deref(profile.Status.Provisioner, "")
	if asked := ptr.Deref(profile.Spec.SnapshotClass, ""); asked != "" {
		return fmt.Sprintf("there is no VolumeSnapshotClass %s of driver %s, which spec.snapshotClass of StorageProfile %s names; create or name another one", asked, driver, profile.Name)
	}
	return fmt.Sprintf("there is no VolumeSnapshotClass of driver %s; create one", driver)
}

// cloneStrategy is how such volumes are best cloned. Without a snapshot class it is never by snapshot,
// unless somebody says so.
func cloneStrategy(f facts, snapshots bool) cdiv1.CDICloneStrategy {
	if f.spec.CloneStrategy != nil {
		return *f.spec.CloneStrategy
	}
	if asked := cdiv1.CDICloneStrategy(f.class.Annotations[annotationCloneStrategy]); slices.Contains(cloneStrategies, asked) {
		return asked
	}
	best := cdiv1.CloneStrategySnapshot
	if f.known != nil && f.known.CloneStrategy != "" {
		best = f.known.CloneStrategy
	}
	if best == cdiv1.CloneStrategySnapshot && !snapshots {
		return cdiv1.CloneStrategyHostAssisted
	}
	return best
}

// sourceFormat is what DataImportCrons keep of an import to such a volume. Without a snapshot class it is
// never a snapshot, unless somebody says so.
func sourceFormat(f facts, snapshots bool) cdiv1.DataImportCronSourceFormat {
	if f.spec.DataImportCronSourceFormat != nil {
		return *f.spec.DataImportCronSourceFormat
	}
	if f.known != nil && f.known.SourceFormat != "" && snapshots {
		return f.known.SourceFormat
	}
	return cdiv1.DataImportCronSourceFormatPvc
}

// recognized says whether anything is known of the class.
func recognized(f facts, known bool) cdiv1.StorageProfileCondition {
	state := cdiv1.ConditionState{
		Status: corev1.ConditionTrue, Reason: reasonRecognized, Message: "The provisioner and its parameters are known",
		LastTransitionTime: f.now, LastHeartbeatTime: f.now,
	}
	switch {
	case !known && f.class.Provisioner == noProvisioner:
		state.Status, state.Reason = corev1.ConditionFalse, reasonUnrecognized
		state.Message = "There are no volumes of this class yet that would tell what it offers; set spec.claimPropertySets, or name accessModes in DataVolumes"
	case !known:
		state.Status, state.Reason = corev1.ConditionFalse, reasonUnrecognized
		state.Message = "The provisioner, with these parameters, is not known; set spec.claimPropertySets, or name accessModes in DataVolumes"
	}
	for _, old := range f.before.Conditions {
		if old.Type != cdiv1.StorageProfileRecognized || old.Status != state.Status {
			continue
		}
		state.LastTransitionTime = old.LastTransitionTime
		if old.Reason == state.Reason && old.Message == state.Message {
			state.LastHeartbeatTime = old.LastHeartbeatTime
		}
	}
	return cdiv1.StorageProfileCondition{Type: cdiv1.StorageProfileRecognized, ConditionState: state}
}
