// Package rename is how the rename of a VirtualMachine is asked for, and how it is recorded in the
// API, so that it is carried on from wherever it was broken off. The VM that is renamed says what
// it is to become; the VM that takes its place says whose place that is, and does not start until
// it has it.
package rename

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

const (
	// AnnotationTarget on a VM is the name that it is being given.
	AnnotationTarget = names.Domain + "rename-to"
	// AnnotationOrigin on a VM is the name and uid of the one that it takes the place of, until it has it.
	AnnotationOrigin = names.Domain + "renamed-from"
	// AnnotationFailure on a VM is the name that it could not be given, and why not.
	AnnotationFailure = names.Domain + "rename-failed"
)

// Condition of a VM: True while it is being renamed, False when that failed, with the reason ReasonFailed.
const Condition virtv1.VirtualMachineConditionType = "Renaming"

// ReasonFailed is the reason of that condition, and of an event.
const ReasonFailed = "RenameFailed"

// Options are the body of the subresource rename, with the names of fields that KubeVirt's had.
type Options struct {
	metav1.TypeMeta `json:",inline"`
	// NewName is the name that the VM is to have.
	NewName string `json:"newName"`
	// OldName is the name that it has, which the path says too.
	OldName *string `json:"oldName,omitempty"`
	// DryRun: All asks whether it would be done, and changes nothing.
	DryRun []string `json:"dryRun,omitempty"`
}

// Origin is the VM whose place another one takes.
type Origin struct {
	Name string
	UID  types.UID
}

// Target is the name that vm is being given, "" for none.
func Target(vm metav1.Object) string { return vm.GetAnnotations()[AnnotationTarget] }

// OriginOf is the VM whose place vm is taking; false when it takes none.
func OriginOf(vm metav1.Object) (Origin, bool) {
	name, uid, ok := strings.Cut(vm.GetAnnotations()[AnnotationOrigin], "/")
	return Origin{Name: name, UID: types.UID(uid)}, ok && name != "" && uid != ""
}

// String is as the annotation has it.
func (o Origin) String() string { return o.Name + "/" + string(o.UID) }

// Failure says which name vm could not be given, and why not; "" when its last rename did not fail.
func Failure(vm metav1.Object) (target, why string) {
	target, why, _ = strings.Cut(vm.GetAnnotations()[AnnotationFailure], ": ")
	return target, why
}

// Failed records in annotations that a VM could not be given the name target.
func Failed(annotations map[string]string, target, why string) {
	delete(annotations, AnnotationTarget)
	annotations[AnnotationFailure] = target + ": " + why
}
