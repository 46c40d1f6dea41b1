package health

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines/gitops"
)

// State is a health in the words of Flux.
type State string

// The states that Flux knows.
const (
	Current    State = "Current"
	InProgress State = "InProgress"
	Failed     State = "Failed"
)

const fluxFile = "flux/health.yaml"

// Expressions are what Flux asks of the objects of one kind.
type Expressions struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	InProgress string `json:"inProgress,omitempty"`
	Failed     string `json:"failed,omitempty"`
	Current    string `json:"current"`
}

// FluxExpressions are those of flux/health.yaml.
func FluxExpressions() ([]Expressions, error) {
	data, err := gitops.Files.ReadFile(fluxFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", fluxFile, err)
	}
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []map[string]string `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		return nil, fmt.Errorf("reading %s: %w", fluxFile, err)
	}
	text, err := yaml.Marshal(kustomization.Spec.HealthCheckExprs)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", fluxFile, err)
	}
	var all []Expressions
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", fluxFile, err)
	}
	return all, nil
}

// Flux returns the state that Flux finds of the object. As in Flux an expression that cannot be
// answered, for an object has no status yet, is an error and what Flux waits for.
func Flux(object *unstructured.Unstructured) (State, error) {
	all, err := FluxExpressions()
	if err != nil {
		return "", err
	}
	for _, e := range all {
		if e.APIVersion == object.GetAPIVersion() && e.Kind == object.GetKind() {
			return e.state(object)
		}
	}
	return "", fmt.Errorf("%s has no expressions for %s %s", fluxFile, object.GetAPIVersion(), object.GetKind())
}

func (e Expressions) state(object *unstructured.Unstructured) (State, error) {
	observed, ok, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if err != nil {
		return "", fmt.Errorf("reading status.observedGeneration: %w", err)
	}
	if ok && observed != object.GetGeneration() {
		return InProgress, nil
	}
	for _, question := range []struct {
		text  string
		state State
	}{{e.InProgress, InProgress}, {e.Failed, Failed}, {e.Current, Current}} {
		if question.text == "" {
			continue
		}
		yes, err := ask(question.text, object.Object)
		if err != nil {
			return "", err
		}
		if yes {
			return question.state, nil
		}
	}
	return InProgress, nil
}

// ask evaluates an expression with the object's fields as variables and the functions that Flux gives.
func ask(expression string, object map[string]any) (bool, error) {
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		return false, fmt.Errorf("preparing CEL: %w", err)
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return false, fmt.Errorf("reading %q: %w", expression, issues.Err())
	}
	program, err := env.Program(parsed)
	if err != nil {
		return false, fmt.Errorf("reading %q: %w", expression, err)
	}
	answer, _, err := program.Eval(object)
	if err != nil {
		return false, fmt.Errorf("evaluating %q: %w", expression, err)
	}
	yes, ok := answer.(types.Bool)
	if !ok {
		return false, fmt.Errorf("%q is %s, not true or false", expression, answer.Type().TypeName())
	}
	return bool(yes), nil
}
