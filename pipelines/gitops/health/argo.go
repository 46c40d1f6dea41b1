// Package health runs the health checks that Slipway ships, as Argo CD and Flux would: it is for
// tests, of recorded objects and of those in a cluster.
package health

import (
	"errors"
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines/gitops"
)

// Status is a health in Argo CD's words: Healthy, Progressing, Degraded or Suspended.
type Status string

// The healths that Argo CD knows and these checks give.
const (
	Healthy     Status = "Healthy"
	Progressing Status = "Progressing"
	Degraded    Status = "Degraded"
	Suspended   Status = "Suspended"
)

const (
	argoFile   = "argocd/health.yaml"
	argoPrefix = "resource.customizations.health."
)

// ArgoScripts are the Lua scripts of argocd/health.yaml by "<group>_<Kind>".
func ArgoScripts() (map[string]string, error) {
	data, err := gitops.Files.ReadFile(argoFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", argoFile, err)
	}
	var settings corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &settings); err != nil {
		return nil, fmt.Errorf("reading %s: %w", argoFile, err)
	}
	scripts := map[string]string{}
	for key, script := range settings.Data {
		kind, ok := strings.CutPrefix(key, argoPrefix)
		if !ok {
			return nil, fmt.Errorf("%s: %s is no health of a kind", argoFile, key)
		}
		scripts[kind] = script
	}
	return scripts, nil
}

// Argo returns the health that the script of the object's kind finds, with its message.
func Argo(object *unstructured.Unstructured) (Status, string, error) {
	scripts, err := ArgoScripts()
	if err != nil {
		return "", "", err
	}
	of := object.GroupVersionKind()
	script, ok := scripts[of.Group+"_"+of.Kind]
	if !ok {
		return "", "", fmt.Errorf("%s has no script for %s", argoFile, of.GroupKind())
	}
	return runLua(script, object.Object)
}

// runLua runs a script with the few libraries that Argo CD gives it.
func runLua(script string, object map[string]any) (Status, string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return "", "", fmt.Errorf("opening Lua's %s: %w", name, err)
		}
	}
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(script); err != nil {
		return "", "", fmt.Errorf("running the script: %w", err)
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", errors.New("the script returns no table")
	}
	status, message := Status(answer.RawGetString("status").String()), answer.RawGetString("message")
	switch status {
	case Healthy, Progressing, Degraded, Suspended:
	default:
		return "", "", fmt.Errorf("the script returns status %q", status)
	}
	if message.Type() != lua.LTString {
		return "", "", fmt.Errorf("the script returns a message of type %s", message.Type())
	}
	return status, message.String(), nil
}

// toLua turns what a JSON document holds into Lua's values.
func toLua(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := state.NewTable()
		for _, item := range v {
			table.Append(toLua(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range v {
			table.RawSetString(key, toLua(state, item))
		}
		return table
	}
	return lua.LNil
}
