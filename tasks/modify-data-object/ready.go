package modifydataobject

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// maxRestarts is how often an import may fail before the wait ends, as in the field.
const maxRestarts = 3

// waitReady watches the object until it is ready, and says what it saw last when ctx ends before.
func waitReady(ctx context.Context, call *declare.Call, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	r := &readiness{call: call, key: key, uid: object.GetUID(), last: "not seen"}
	var err error
	switch object.(type) {
	case *cdiv1.DataSource:
		err = await.Object(ctx, call.Client, &cdiv1.DataSourceList{}, key, r.dataSource)
	case *cdiv1.DataVolume:
		err = await.Object(ctx, call.Client, &cdiv1.DataVolumeList{}, key,
			func(volume *cdiv1.DataVolume, exists bool) (bool, error) { return r.dataVolume(ctx, volume, exists) })
	default: // the claim that CDI left of a finished DataVolume
		return nil
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %s %s was last seen %s", context.Cause(ctx), kindOf(object), key, r.last)
	}
	return err
}

// readiness follows one object until it is ready.
type readiness struct {
	call *declare.Call
	key  client.ObjectKey
	uid  types.UID
	// last says what the object was like when it was last seen.
	last string
}

func (r *readiness) see(state string) {
	if state != r.last {
		r.last = state
		r.call.Log.Info("waiting", "state", state)
	}
}

func (r *readiness) dataSource(source *cdiv1.DataSource, exists bool) (bool, error) {
	if !exists {
		return false, fmt.Errorf("DataSource %s was deleted", r.key)
	}
	for _, c := range source.Status.Conditions {
		if c.Type == cdiv1.DataSourceReady {
			r.see(fmt.Sprintf("Ready=%s %s", c.Status, c.Message))
			return c.Status == corev1.ConditionTrue, nil
		}
	}
	r.see("without the condition Ready")
	return false, nil
}

func (r *readiness) dataVolume(ctx context.Context, volume *cdiv1.DataVolume, exists bool) (bool, error) {
	if !exists {
		return r.collected(ctx)
	}
	if r.uid != "" && volume.UID != r.uid {
		return false, fmt.Errorf("DataVolume %s was replaced by another while the task waited for it", r.key)
	}
	status := volume.Status
	r.see(describe(volume))
	bound, running := condition(volume, cdiv1.DataVolumeBound), condition(volume, cdiv1.DataVolumeRunning)
	works := status.Phase == cdiv1.ImportInProgress || status.Phase == cdiv1.CloneInProgress
	failing := works && status.RestartCount > maxRestarts &&
		bound.Status == corev1.ConditionTrue && running.Status == corev1.ConditionFalse && running.Reason == "Error"
	switch {
	case status.Phase == cdiv1.Succeeded && bound.Status == corev1.ConditionTrue:
		return true, nil
	case status.Phase == cdiv1.Failed || failing:
		return false, fmt.Errorf("DataVolume %s failed: %s", r.key, describe(volume))
	}
	return false, nil
}

// collected is for a DataVolume that is gone: CDI may collect one that succeeded, and leave its claim.
func (r *readiness) collected(ctx context.Context) (bool, error) {
	var claim corev1.PersistentVolumeClaim
	err := r.call.Client.Get(ctx, r.key, &claim)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("looking for the claim of DataVolume %s, which is gone: %w", r.key, err)
	case err != nil || claim.DeletionTimestamp != nil:
		return false, fmt.Errorf("DataVolume %s was deleted; it was last seen %s", r.key, r.last)
	}
	for _, owner := range claim.OwnerReferences {
		if owner.UID == r.uid {
			return false, errors.New("DataVolume " + r.key.String() + " was deleted, and its claim goes with it")
		}
	}
	r.call.Log.Info("the DataVolume was collected after its success; its claim is there", "name", r.key.String())
	return true, nil
}

// describe says what a DataVolume is like: its phase, its progress, and what is wrong or awaited.
func describe(volume *cdiv1.DataVolume) string {
	status := volume.Status
	text := fmt.Sprintf("in phase %s", status.Phase)
	switch status.Phase {
	case cdiv1.PhaseUnset:
		text = "without a phase"
	case cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation:
		text += fmt.Sprintf(" (no pod uses its claim; the annotation %s: \"true\" fills it without one)", names.AnnotationBind)
	}
	if status.Progress != "" && status.Progress != "N/A" {
		text += " at " + string(status.Progress)
	}
	if status.RestartCount > 0 {
		text += fmt.Sprintf(" after %d restarts", status.RestartCount)
	}
	for _, c := range []cdiv1.DataVolumeCondition{condition(volume, cdiv1.DataVolumeBound), condition(volume, cdiv1.DataVolumeRunning)} {
		if c.Status != corev1.ConditionTrue && (c.Reason != "" || c.Message != "") {
			text += fmt.Sprintf(", %s: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return text
}

func condition(volume *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType) cdiv1.DataVolumeCondition {
	for _, c := range volume.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return cdiv1.DataVolumeCondition{}
}
