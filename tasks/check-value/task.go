// Package checkvalue is the task that refuses a run whose parameter has a value that is not allowed.
package checkvalue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// Task declares check-value.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "check-value",
		Title:   "Check a value",
		Summary: "Ends a run whose parameter does not have one of the values that are allowed.",
		Details: `The first task of a pipeline that must not begin without somebody's consent, or with a parameter that it no longer takes.
A value is compared as it is: "True" and " true" are not "true".

Exit codes: 1 the value is not allowed, 255 a parameter is wrong.`,
		Image: declare.Slipway,
		Params: []declare.Param{
			{Name: "name", Description: "Name of the parameter, for the message.", Required: true},
			{Name: "value", Description: "Its value."},
			{Name: "allowed", Description: "The values that are allowed.", Array: true, Required: true},
			{Name: "hint", Description: "What to do instead; the end of the message."},
		},
		Examples: []declare.Example{{Title: "Ask for consent", Params: map[string]any{
			"name": "acceptEula", "value": "true", "allowed": []string{"true"}, "hint": "read the license and set it to true",
		}}},
		Run: run,
	}
}

func run(_ context.Context, call *declare.Call) error {
	name, value, allowed := call.String("name"), call.String("value"), call.Array("allowed")
	if len(allowed) == 0 {
		return declare.Coded(declare.CodeUsage, errors.New("allowed: it has no item, so no value could pass; give at least one"))
	}
	if slices.Contains(allowed, value) {
		call.Log.Info("the value is allowed", "parameter", name, "value", value)
		return nil
	}
	quoted := make([]string, len(allowed))
	for i, item := range allowed {
		quoted[i] = fmt.Sprintf("%q", item)
	}
	message := fmt.Sprintf("%s is %q; it must be %s", name, value, strings.Join(quoted, " or "))
	if hint := call.String("hint"); hint != "" {
		message += ": " + hint
	}
	return declare.Coded(1, errors.New(message))
}
