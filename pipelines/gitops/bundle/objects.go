// Package bundle makes of the shipped tasks and pipelines what Tekton's resolvers fetch: bundles
// in a registry, and pipelines whose tasks come from elsewhere than their own namespace.
package bundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines"
	"github.com/slipway-vm/slipway/tasks"
)

// Object is a Task or a Pipeline.
type Object struct {
	APIVersion string
	Kind       string
	Name       string
	// Content is the whole object.
	Content map[string]any
}

// YAML is the object as text.
func (o Object) YAML() ([]byte, error) {
	text, err := sigsyaml.Marshal(o.Content)
	if err != nil {
		return nil, fmt.Errorf("writing %s %s: %w", o.Kind, o.Name, err)
	}
	return text, nil
}

// Tasks returns all shipped tasks, by name. Images maps the names in the manifests, without a
// tag, to those to run; every one must be in it.
func Tasks(images map[string]string) ([]Object, error) {
	return objects(tasks.Manifests, "*/task.yaml", "Task", func(o Object) error { return setImages(o, images) })
}

// Pipelines returns all shipped pipelines, by name, their tasks referred to as refer says.
func Pipelines(refer Resolver) ([]Object, error) {
	return objects(pipelines.Manifests, "*/pipeline.yaml", "Pipeline", func(o Object) error { return referTo(o, refer) })
}

// objects reads those of a kind and has each changed.
func objects(files fs.FS, pattern, kind string, change func(Object) error) ([]Object, error) {
	paths, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", pattern, err)
	}
	var found []Object
	for _, name := range paths {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		all, err := documents(data)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		for _, o := range all {
			if o.Kind != kind {
				continue
			}
			if err := change(o); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// documents reads the objects of a file.
func documents(data []byte) ([]Object, error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var all []Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("splitting documents: %w", err)
		}
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		content := map[string]any{}
		if err := errors.Join(sigsyaml.Unmarshal(document, &head), sigsyaml.Unmarshal(document, &content)); err != nil {
			return nil, err
		}
		if len(content) > 0 {
			all = append(all, Object{APIVersion: head.APIVersion, Kind: head.Kind, Name: head.Metadata.Name, Content: content})
		}
	}
}

// setImages replaces the image of every step.
func setImages(o Object, images map[string]string) error {
	spec, _ := o.Content["spec"].(map[string]any)
	steps, _ := spec["steps"].([]any)
	for _, step := range steps {
		fields, _ := step.(map[string]any)
		image, _ := fields["image"].(string)
		name, _, _ := strings.Cut(path.Base(image), ":")
		wanted := images[path.Join(path.Dir(image), name)]
		if wanted == "" {
			return fmt.Errorf("spec.steps: there is no image for %s; name it with --image %s=REFERENCE", image, path.Join(path.Dir(image), name))
		}
		fields["image"] = wanted
	}
	return nil
}
