package waitforvmistatus

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// costLimit bounds what an evaluation may cost, in CEL's units; a long one costs some thousands.
const costLimit = 1_000_000

// expression is a CEL expression over the object.
type expression struct {
	program cel.Program
}

// parseCEL reads an expression. The whole object is self; metadata, spec and status are its parts.
func parseCEL(text string) (condition, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	env, err := cel.NewEnv(
		cel.Variable("self", object), cel.Variable("metadata", object), cel.Variable("spec", object), cel.Variable("status", object),
		cel.OptionalTypes(), ext.Strings(), ext.Lists(),
	)
	if err != nil {
		return nil, fmt.Errorf("making the environment of CEL: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, fmt.Errorf("could not parse condition: %w", issues.Err())
	}
	if kind := ast.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("could not parse condition: the expression gives a %s; it must give true or false", kind)
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("could not parse condition: %w", err)
	}
	return &expression{program: program}, nil
}

// holds evaluates the expression. A field that the object does not have yet makes it false.
func (e *expression) holds(tree map[string]any) (bool, error) {
	input := map[string]any{"self": tree}
	for _, part := range []string{"metadata", "spec", "status"} {
		input[part] = map[string]any{}
		if value, ok := tree[part].(map[string]any); ok {
			input[part] = value
		}
	}
	value, _, err := e.program.Eval(input)
	if err != nil {
		if strings.Contains(err.Error(), "no such key") || strings.Contains(err.Error(), "index out of bounds") {
			return false, nil
		}
		return false, fmt.Errorf("evaluating the condition: %w", err)
	}
	met, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("evaluating the condition: it gives %v; it must give true or false", value.Value())
	}
	return met, nil
}
