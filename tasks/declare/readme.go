package declare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// README returns the task's page: what it does, its parameters and results, its rights, examples.
func (t *Task) README() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Generated from task.go by `make generate`. DO NOT EDIT. -->\n# %s\n\n%s\n", t.Name, t.Summary)
	if t.Details != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(t.Details))
	}
	t.writeParams(&b)
	if len(t.Results) > 0 {
		b.WriteString("\n## Results\n\n| name | meaning |\n|---|---|\n")
		for _, r := range t.Results {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.Name, r.Description)
		}
	}
	t.writeWorkspaces(&b)
	t.writeRules(&b)
	for _, e := range t.Examples {
		if err := t.writeExample(&b, e); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func (t *Task) writeParams(b *strings.Builder) {
	b.WriteString("\n## Parameters\n\n| name | default | meaning |\n|---|---|---|\n")
	for _, p := range t.Params {
		value := "`\"" + p.Default + "\"`"
		switch {
		case p.Required:
			value = "required"
		case p.Array:
			value = "`[]`"
		}
		name := "`" + p.Name + "`"
		if p.Array {
			name += " (array)"
		}
		description := strings.ReplaceAll(p.Description, "|", "\\|")
		if len(p.Earlier) > 0 {
			description += " Earlier name: `" + strings.Join(p.Earlier, "`, `") + "`."
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, value, description)
	}
}

func (t *Task) writeWorkspaces(b *strings.Builder) {
	workspaces := t.workspaces()
	if len(workspaces) == 0 {
		return
	}
	b.WriteString("\n## Workspaces\n\n| name | meaning |\n|---|---|\n")
	for _, w := range workspaces {
		fmt.Fprintf(b, "| `%s` (optional) | %s |\n", w.Name, w.Description)
	}
}

func (t *Task) writeRules(b *strings.Builder) {
	b.WriteString("\n## Rights\n\n")
	if len(t.Rules) == 0 {
		b.WriteString("None: the task does not speak to the Kubernetes API.\n")
		return
	}
	fmt.Fprintf(b, "Run it as the ServiceAccount `%s-task`, whose Role is in `task.yaml`:\n\n| group | resources | verbs |\n|---|---|---|\n", t.Name)
	for _, rule := range t.Rules {
		groups := strings.Join(rule.APIGroups, ", ")
		if groups == "" {
			groups = "core"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", groups, strings.Join(rule.Resources, ", "), strings.Join(rule.Verbs, ", "))
	}
}

func (t *Task) writeExample(b *strings.Builder, e Example) error {
	params := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(e.Params)) {
		if _, ok := t.Param(name); !ok {
			return fmt.Errorf("example %q of task %s: no parameter %s", e.Title, t.Name, name)
		}
		params = append(params, map[string]any{"name": name, "value": e.Params[name]})
	}
	spec := map[string]any{"taskRef": map[string]any{"kind": "Task", "name": t.Name}, "params": params}
	if len(t.Rules) > 0 {
		spec["serviceAccountName"] = t.Name + "-task"
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "TaskRun",
		"metadata": map[string]any{"generateName": t.Name + "-"}, "spec": spec,
	})
	if err != nil {
		return fmt.Errorf("writing example %q of task %s: %w", e.Title, t.Name, err)
	}
	fmt.Fprintf(b, "\n## %s\n\n```yaml\n%s```\n", e.Title, data)
	return nil
}
