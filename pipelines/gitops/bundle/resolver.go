package bundle

import (
	"fmt"
	"slices"
)

// Resolver says where a task is fetched from.
type Resolver struct {
	// Name is the resolver's name: bundles, cluster, git or hub; empty for the run's own namespace.
	Name string
	// Params are its parameters, without the task's own.
	Params [][2]string
	// TaskParam makes the parameter that names the task; nil for name.
	TaskParam func(task string) [2]string
}

// FromBundle fetches tasks from a bundle.
func FromBundle(reference string) Resolver {
	return Resolver{Name: "bundles", Params: [][2]string{{"bundle", reference}, {"kind", "task"}}}
}

// FromNamespace fetches tasks from a namespace of the cluster.
func FromNamespace(namespace string) Resolver {
	return Resolver{Name: "cluster", Params: [][2]string{{"namespace", namespace}, {"kind", "task"}}}
}

// FromHub fetches tasks from a repository of Artifact Hub, or of what speaks its API.
func FromHub(repository, version string) Resolver {
	return Resolver{Name: "hub", Params: [][2]string{{"type", "artifact"}, {"kind", "task"}, {"catalog", repository}, {"version", version}}}
}

// FromGit fetches tasks from the folder tasks/ of a repository, each a file <name>.yaml in it.
func FromGit(url, revision, folder string) Resolver {
	return Resolver{
		Name: "git", Params: [][2]string{{"url", url}, {"revision", revision}},
		TaskParam: func(task string) [2]string { return [2]string{"pathInRepo", folder + "/" + task + ".yaml"} },
	}
}

// Reference is the taskRef, or pipelineRef, of what has the name.
func (r Resolver) Reference(name string) map[string]any {
	own := [2]string{"name", name}
	if r.TaskParam != nil {
		own = r.TaskParam(name)
	}
	var params []any
	for _, p := range append(slices.Clip(r.Params), own) {
		params = append(params, map[string]any{"name": p[0], "value": p[1]})
	}
	return map[string]any{"resolver": r.Name, "params": params}
}

// referTo makes the tasks of a pipeline come from a resolver.
func referTo(o Object, r Resolver) error {
	if r.Name == "" {
		return nil
	}
	spec, _ := o.Content["spec"].(map[string]any)
	for _, part := range []string{"tasks", "finally"} {
		list, _ := spec[part].([]any)
		for n, item := range list {
			task, _ := item.(map[string]any)
			if _, inline := task["taskSpec"]; inline {
				continue
			}
			ref, _ := task["taskRef"].(map[string]any)
			name, _ := ref["name"].(string)
			if name == "" {
				return fmt.Errorf("spec.%s[%d].taskRef.name is missing", part, n)
			}
			task["taskRef"] = r.Reference(name)
		}
	}
	return nil
}
