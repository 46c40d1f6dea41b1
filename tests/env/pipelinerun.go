package env

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"sigs.k8s.io/yaml"
)

// PipelineRun is the run to copy of a shipped pipeline in a namespace, with other parameters
// than those that it shows.
func (c *Cluster) PipelineRun(namespace, pipeline string, params map[string]string) (*tektonv1.PipelineRun, error) {
	data, err := os.ReadFile(filepath.Join(c.Root, "pipelines", pipeline, "run.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the run of pipeline %s: %w", pipeline, err)
	}
	run := &tektonv1.PipelineRun{}
	if err := yaml.UnmarshalStrict(data, run); err != nil {
		return nil, fmt.Errorf("reading the run of pipeline %s: %w", pipeline, err)
	}
	run.Namespace, run.Spec.Params = namespace, Params(params)
	return run, nil
}

// Params are parameters of a run, by their names.
func Params(values map[string]string) tektonv1.Params {
	var params tektonv1.Params
	for _, name := range slices.Sorted(maps.Keys(values)) {
		params = append(params, tektonv1.Param{Name: name, Value: *tektonv1.NewStructuredValues(values[name])})
	}
	return params
}
