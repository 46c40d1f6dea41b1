package hyperconverged

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
	"github.com/slipway-vm/slipway/internal/names"
)

// componentSizes is the component of the common instance types and preferences.
const componentSizes = "common-instancetypes"

var (
	instancetypeKind = v1beta1.SchemeGroupVersion.WithKind("VirtualMachineClusterInstancetype")
	preferenceKind   = v1beta1.SchemeGroupVersion.WithKind("VirtualMachineClusterPreference")
)

// enabledPath is the KubeVirt object's word on whether they are installed.
var enabledPath = []string{"spec", "configuration", "commonInstancetypesDeployment", "enabled"}

// sizesWanted says whether the common instance types and preferences are to be installed: unless
// the KubeVirt or the SSP object, as HyperConverged wants them, says no.
func sizesWanted(hco *hcov1.HyperConverged, kubevirt *unstructured.Unstructured, ssp *sspv1beta3.SSPSpec) (bool, error) {
	enabled, said, err := unstructured.NestedBool(kubevirt.Object, enabledPath...)
	if err != nil {
		return false, fmt.Errorf("reading %s of KubeVirt: %w", strings.Join(enabledPath, "."), err)
	}
	if gates := ssp.FeatureGates; gates != nil && !ptr.Deref(gates.DeployCommonInstancetypes, true) {
		return false, nil
	}
	if !said { // a patch took it out
		return sizesEnabled(hco), nil
	}
	return enabled, nil
}

// planSizes returns the common instance types and preferences of files.
func planSizes(files fs.FS, version string) ([]*unstructured.Unstructured, error) {
	if files == nil {
		return nil, nil
	}
	objects, err := render.Bundle(files, nil)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", componentSizes, err)
	}
	mark(objects, componentSizes, version)
	return objects, nil
}

// shippedSizes is planSizes for this operator, done once: it is the longest part of a plan, and always the same.
func (r *Reconciler) shippedSizes() ([]*unstructured.Unstructured, error) {
	if r.sizes == nil {
		objects, err := planSizes(r.Options.Sizes, r.Options.Version)
		if err != nil {
			return nil, err
		}
		r.sizes = objects
	}
	return r.sizes, nil
}

// addSizes adds the common instance types and preferences to what is wanted, if they are. Where
// an object of somebody else has the name of one, that object stays, and the status tells.
func (r *Reconciler) addSizes(ctx context.Context, s *scope) error {
	if s.sizes {
		return r.addWantedSizes(ctx, s)
	}
	s.sized = true
	return nil
}

func (r *Reconciler) addWantedSizes(ctx context.Context, s *scope) error {
	shipped, err := r.shippedSizes()
	if err != nil {
		return err
	}
	for _, object := range shipped {
		live, err := r.findSize(ctx, object)
		if client.IgnoreNotFound(err) != nil {
			s.unsized = err // nothing waits for them, so the pass goes on
			return nil
		}
		if err == nil && !bearsOurName(live) {
			s.taken = append(s.taken, object.GetKind()+" "+object.GetName())
			continue
		}
		s.wanted = append(s.wanted, object)
	}
	s.sized = true
	return nil
}

// findSize reads what has the name of object. A cache that has only what the operator installed
// is no proof that nobody has it.
func (r *Reconciler) findSize(ctx context.Context, object *unstructured.Unstructured) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	if err := r.watch(ctx, object.GroupVersionKind()); err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(object)
	err := r.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) && r.SizesFiltered {
		err = r.Reader.Get(ctx, key, live)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return live, nil
}

// bearsOurName says whether a label of object says that it is Slipway's. One that was taken off
// by hand is put back; who takes off both has taken the object over.
func bearsOurName(object client.Object) bool {
	labels := object.GetLabels()
	return labels[LabelComponent] != "" || labels[names.LabelManagedBy] == names.ManagedBy
}

// isSize says whether object is of the kinds of common instance types and preferences.
func isSize(object client.Object) bool {
	kind := object.GetObjectKind().GroupVersionKind().GroupKind()
	return kind == instancetypeKind.GroupKind() || kind == preferenceKind.GroupKind()
}

// isCopy says whether object only has the labels of what the operator installed: users make
// their own instance types and boot sources from copies of the shipped ones.
func isCopy(object client.Object) bool {
	if !isSize(object) && object.GetObjectKind().GroupVersionKind().GroupKind() != cronKind.GroupKind() {
		return false
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == names.ManagerOperator && entry.Operation == metav1.ManagedFieldsOperationApply {
			return false
		}
	}
	return true
}

// settleSize says whether an instance type or preference that exists is as it is wanted, and
// makes its spec so if not: applying alone would leave what others added to it.
func (r *Reconciler) settleSize(ctx context.Context, wanted *unstructured.Unstructured, content string) (bool, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(wanted.GroupVersionKind())
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s %s: %w", wanted.GetKind(), wanted.GetName(), err)
	}
	if !bearsOurName(live) {
		return true, nil // taken over since the cache heard of it; the event of that brings the next pass
	}
	if sameJSON(live.Object["spec"], wanted.Object["spec"]) {
		settled := !isCopy(live) && covers(live.GetLabels(), wanted.GetLabels()) && covers(live.GetAnnotations(), wanted.GetAnnotations())
		if settled {
			r.applied.put(identify(wanted), record{content, versionOf(live)})
		}
		return settled, nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()}, // as it was read, or not at all
		{"op": "add", "path": "/spec", "value": wanted.Object["spec"]},
	})
	if err != nil {
		return false, fmt.Errorf("encoding the spec of %s %s: %w", wanted.GetKind(), wanted.GetName(), err)
	}
	err = r.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(names.ManagerOperator))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("overwriting the spec of %s %s: %w", wanted.GetKind(), wanted.GetName(), err)
	}
	return false, nil
}

// covers says whether all has every entry of some.
func covers(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// takenMessage names the objects of others that keep common ones from being installed.
func takenMessage(taken []string) string {
	named := taken
	if len(named) > maxBlockers {
		named = append(append([]string{}, named[:maxBlockers]...), fmt.Sprintf("and %d more", len(taken)-maxBlockers))
	}
	return fmt.Sprintf("objects that Slipway does not manage have the names of common instance types or preferences and stay as they are: %s; "+
		"delete them to get the common ones", strings.Join(named, ", "))
}
