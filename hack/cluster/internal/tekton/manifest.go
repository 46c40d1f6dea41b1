// Package tekton turns the manifests of Tekton's module into objects for a
// cluster without a registry. It is pure apart from reading those files.
package tekton

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"

	"sigs.k8s.io/yaml"
)

// Prefix is how Tekton's manifests name an image that its own tool builds.
const Prefix = "ko://github.com/tektoncd/pipeline/cmd/"

// Images are the references that the manifests get.
type Images struct {
	// Programs maps a program of Tekton's cmd folder to its image.
	Programs map[string]string
	// Shell is the image with a shell, which unpacks a step's script.
	Shell string
}

// Flags are the values that the feature-flags ConfigMap gets beyond its defaults. Nothing
// injects sidecars into pods here, so a step need not wait until the kubelet tells it that all
// containers run, which takes about a second.
var Flags = map[string]string{"set-security-context": "true", "running-in-environment-with-injected-sidecars": "false"}

// settings are values that further ConfigMaps get: what a resolver fetches may take longer on a busy machine than the minute of
// the defaults.
var settings = map[string]map[string]string{
	"config-defaults":     {"default-maximum-resolution-timeout": "5m"},
	"git-resolver-config": {"fetch-timeout": "5m"},
}

// controllerFlags let many runs at a time go on without waiting for the controller's turn at the
// API, as Tekton's tekton-controller-performance-configuration.md advises.
var controllerFlags = []any{"-kube-api-qps", "50", "-kube-api-burst", "50", "-threads-per-controller", "32"}

// skipped kinds: no metrics server feeds an autoscaler here.
var skipped = map[string]bool{"HorizontalPodAutoscaler": true}

// Objects reads the manifests of a config folder (top folder of files), in an
// order in which they can be applied, and fits them to the local images.
func Objects(files fs.FS, version string, images Images) ([]map[string]any, error) {
	var names []string
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing Tekton's manifests: %w", err)
	}
	sort.Strings(names)
	var objects []map[string]any
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading Tekton's manifest %s: %w", name, err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(strings.TrimLeft(doc, "- \n")), &object); err != nil {
				return nil, fmt.Errorf("reading Tekton's manifest %s: %w", name, err)
			}
			if len(object) == 0 || skipped[fmt.Sprint(object["kind"])] {
				continue
			}
			if err := fit(object, version, images); err != nil {
				return nil, fmt.Errorf("fitting Tekton's manifest %s: %w", name, err)
			}
			objects = append(objects, object)
		}
	}
	sort.SliceStable(objects, func(i, j int) bool { return rank(objects[i]) < rank(objects[j]) })
	return objects, nil
}

// rank orders kinds: what others live in or refer to comes first, what admits
// objects last, so that nothing is refused while the webhook is not up.
func rank(object map[string]any) int {
	switch object["kind"] {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ConfigMap", "Secret":
		return 2
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return 4
	}
	return 3
}

// fit replaces image references, the version and the feature flags.
func fit(object map[string]any, version string, images Images) error {
	metadata, _ := object["metadata"].(map[string]any)
	switch object["kind"] {
	case "ConfigMap":
		data, _ := object["data"].(map[string]any)
		name, _ := metadata["name"].(string)
		for k, v := range settings[name] {
			data[k] = v
		}
		switch name {
		case "feature-flags":
			for k, v := range Flags {
				data[k] = v
			}
		case "pipelines-info":
			data["version"] = version
		}
	case "Deployment":
		for _, c := range containers(object) {
			if err := fitContainer(c, images); err != nil {
				return err
			}
		}
	}
	return nil
}

// containers returns the containers of a Deployment.
func containers(object map[string]any) []map[string]any {
	var at any = object
	for _, step := range []string{"spec", "template", "spec", "containers"} {
		m, _ := at.(map[string]any)
		at = m[step]
	}
	list, _ := at.([]any)
	found := make([]map[string]any, 0, len(list))
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			found = append(found, m)
		}
	}
	return found
}

// fitContainer gives a container local images and its program's own path.
func fitContainer(c map[string]any, images Images) error {
	ref, program, err := images.resolve(fmt.Sprint(c["image"]))
	if err != nil {
		return err
	}
	c["image"], c["imagePullPolicy"], c["command"] = ref, "IfNotPresent", []any{Path(program)}
	args, _ := c["args"].([]any)
	for i, a := range args {
		text := fmt.Sprint(a)
		switch {
		case strings.HasPrefix(text, "ko://"):
			if args[i], _, err = images.resolve(text); err != nil {
				return err
			}
		case text == "-shell-image" && i+1 < len(args):
			args[i+1] = images.Shell
		}
	}
	if program == "controller" {
		c["args"] = slices.Concat(args, controllerFlags)
	}
	return nil
}

// resolve returns the local image and the program of a ko reference.
func (i Images) resolve(ref string) (image, program string, err error) {
	program, ok := strings.CutPrefix(ref, Prefix)
	if !ok || i.Programs[program] == "" {
		return "", "", fmt.Errorf("there is no local image for %s", ref)
	}
	return i.Programs[program], program, nil
}

// Path is where a program lies in its image.
func Path(program string) string { return "/ko-app/" + program }
