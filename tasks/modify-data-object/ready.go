package modifydataobject

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// maxRestarts is how often an import may fail before the wait ends, as in the field.
const maxRestarts = 3

// waitReady watches the object until it is ready, and says what it saw last when ctx ends before.
func waitReady(ctx context.Context, call *declare.Call, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	r := &readiness{call: call, last: "not seen"}
	var err error
	switch object.(type) {
	case *cdiv1.DataSource:
		err = await.Object(ctx, call.Client, &cdiv1.DataSourceList{}, key, r.dataSource)
	default:
		err = await.Object(ctx, call.Client, &cdiv1.DataVolumeList{}, key, r.dataVolume)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %s %s was last seen %s", context.Cause(ctx), kindOf(object), key, r.last)
	}
	return err
}

// readiness follows one object until it is ready.
type readiness struct {
	call *declare.Call
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
		return false, errors.New("the DataSource was deleted")
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

func (r *readiness) dataVolume(volume *cdiv1.DataVolume, exists bool) (bool, error) {
	if !exists {
		return false, errors.New("the DataVolume was deleted")
	}
	status := volume.Status
	bound, running := condition(volume, cdiv1.DataVolumeBound), condition(volume, cdiv1.DataVolumeRunning)
	state := fmt.Sprintf("in phase %s", status.Phase)
	if status.Progress != "" && status.Progress != "N/A" {
		state += " at " + string(status.Progress)
	}
	if running.Message != "" {
		state += ": " + running.Message
	}
	r.see(state)
	failing := status.Phase == cdiv1.ImportInProgress && status.RestartCount > maxRestarts &&
		bound.Status == corev1.ConditionTrue && running.Status == corev1.ConditionFalse && running.Reason == "Error"
	switch {
	case status.Phase == cdiv1.Succeeded && bound.Status == corev1.ConditionTrue:
		return true, nil
	case status.Phase == cdiv1.Failed || failing:
		return false, fmt.Errorf("DataVolume %s/%s failed: %s: %s", volume.Namespace, volume.Name, running.Reason, running.Message)
	}
	return false, nil
}

func condition(volume *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType) cdiv1.DataVolumeCondition {
	for _, c := range volume.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return cdiv1.DataVolumeCondition{}
}
