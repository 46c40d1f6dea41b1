package declare

import (
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/taskdisk"
)

// What catalogs say of the tasks.
const (
	// Version is the tasks' version in catalogs. Each release raises it with releasedAt.
	Version    = "0.1.0"
	releasedAt = "2026-11-21T00:00:00Z"
	// MinVersion is the oldest Tekton Pipelines that the tasks run on.
	MinVersion = "0.54.0"
	license    = "Apache-2.0"
	provider   = "Slipway"
	homepage   = "https://github.com/slipway-vm/slipway"
)

// keywords are the words by which every task is found.
var keywords = []string{"kubevirt", "virtual-machine", "cdi", "provisioning"}

// catalogLabels are the labels of the Task, with its version.
func (t *Task) catalogLabels() map[string]string {
	labels := t.labels()
	labels["app.kubernetes.io/version"] = Version
	if t.Disk != "" {
		labels[taskdisk.Label] = taskdisk.Volume // for the webhook that fits the pod to its claim
	}
	return labels
}

// annotations are what Tekton's catalogs, Artifact Hub and forms read of the Task.
func (t *Task) annotations() map[string]string {
	annotations := map[string]string{
		"tekton.dev/displayName":          t.Title,
		"tekton.dev/categories":           "Virtualization",
		"tekton.dev/pipelines.minVersion": MinVersion,
		"tekton.dev/platforms":            "linux/amd64",
		"tekton.dev/tags":                 strings.Join(keywords, ", "),
		"artifacthub.io/category":         "integration-delivery",
		"artifacthub.io/license":          license,
		"artifacthub.io/provider":         provider,
		"artifacthub.io/links":            "- name: source\n  url: " + homepage + "\n",
	}
	if len(t.Rules) > 0 {
		annotations["task.kubevirt.io/associatedServiceAccount"] = t.Name + "-task"
	}
	for _, p := range t.Params {
		maps.Copy(annotations, p.hints())
	}
	return annotations
}

// HintPrefix is the prefix of the annotations on the parameter. It is a DNS name, which has no
// "_": that of EXPORT_SOURCE_KIND begins with export-source-kind.
func (p Param) HintPrefix() string {
	name := p.Name
	if strings.Contains(name, "_") {
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	}
	return name + ".params.task.kubevirt.io/"
}

// hints tell a form how to ask for the parameter.
func (p Param) hints() map[string]string {
	prefix := p.HintPrefix()
	kind := p.Kind
	switch {
	case kind != "":
	case p.Array:
		kind = "array"
	default:
		kind = "string"
	}
	hints := map[string]string{prefix + "type": kind}
	if p.Object.Kind != "" {
		hints[prefix+"kind"], hints[prefix+"apiVersion"] = p.Object.Kind, p.Object.APIVersion
	}
	return hints
}

// hubPackage is Artifact Hub's file on a package.
type hubPackage struct {
	Version          string            `json:"version"`
	Name             string            `json:"name"`
	DisplayName      string            `json:"displayName"`
	CreatedAt        string            `json:"createdAt"`
	Description      string            `json:"description"`
	License          string            `json:"license"`
	HomeURL          string            `json:"homeURL"`
	ContainersImages []hubImage        `json:"containersImages"`
	Keywords         []string          `json:"keywords"`
	Links            []hubLink         `json:"links"`
	Install          string            `json:"install"`
	Provider         map[string]string `json:"provider"`
	Annotations      map[string]string `json:"annotations"`
}

type hubImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

type hubLink struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// hub returns the task's file for Artifact Hub.
func (t *Task) hub() ([]byte, error) {
	p := hubPackage{
		Version: Version, Name: t.Name, DisplayName: t.Title, CreatedAt: releasedAt, Description: t.Summary,
		License: license, HomeURL: homepage, Keywords: keywords,
		Links:       []hubLink{{Name: "source", URL: homepage}},
		Install:     "```\nkubectl apply -f task.yaml\n```\n",
		Provider:    map[string]string{"name": provider},
		Annotations: map[string]string{"tekton/pipelines.minVersion": MinVersion},
	}
	seen := map[string]bool{}
	for _, step := range t.tekton().Spec.Steps {
		if !seen[step.Image] {
			seen[step.Image] = true
			p.ContainersImages = append(p.ContainersImages, hubImage{Name: step.Name, Image: step.Image})
		}
	}
	data, err := yaml.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("writing the hub's file on task %s: %w", t.Name, err)
	}
	return append([]byte("# Generated from task.go by `make generate`. DO NOT EDIT.\n"), data...), nil
}

// Files returns what is generated into the task's folder, by name.
func (t *Task) Files() (map[string][]byte, error) {
	manifest, err := t.YAML()
	if err != nil {
		return nil, err
	}
	readme, err := t.README()
	if err != nil {
		return nil, err
	}
	hub, err := t.hub()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"task.yaml": manifest, "README.md": []byte(readme), "artifacthub-pkg.yml": hub}, nil
}
