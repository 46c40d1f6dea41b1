// Package controllerrevision writes what a ControllerRevision holds.
package controllerrevision

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Data is value as the data of a ControllerRevision, with the keys in the order in which the API
// server writes them: it takes data for changed, which it refuses, when a patch of the revision's
// metadata brings them into another order.
func Data(value any) (runtime.RawExtension, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("converting %T: %w", value, err)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return runtime.RawExtension{}, fmt.Errorf("encoding %T: %w", value, err)
	}
	return runtime.RawExtension{Raw: data}, nil
}
