package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-vm/slipway/pipelines/gitops/bundle"
)

// sources are the flags that say where a pipeline's tasks come from; one of them.
type sources struct {
	namespace, bundle, hub, git string
}

// resolver is the one that the flags name.
func (s sources) resolver() (bundle.Resolver, error) {
	var found []bundle.Resolver
	if s.namespace != "" {
		found = append(found, bundle.FromNamespace(s.namespace))
	}
	if s.bundle != "" {
		found = append(found, bundle.FromBundle(s.bundle))
	}
	if s.hub != "" {
		repository, version, ok := strings.Cut(s.hub, "@")
		if !ok {
			return bundle.Resolver{}, fmt.Errorf("--from-hub %s: give repository and version, as slipway-tasks@0.1.0", s.hub)
		}
		found = append(found, bundle.FromHub(repository, version))
	}
	if s.git != "" {
		at := strings.LastIndex(s.git, "@")
		if at < 0 {
			return bundle.Resolver{}, fmt.Errorf("--from-git %s: give repository, revision and folder, as https://git.example.com/builds@main:tasks", s.git)
		}
		revision, folder, ok := strings.Cut(s.git[at+1:], ":")
		if !ok {
			return bundle.Resolver{}, fmt.Errorf("--from-git %s: the folder is missing, as in https://git.example.com/builds@main:tasks", s.git)
		}
		found = append(found, bundle.FromGit(s.git[:at], revision, folder))
	}
	switch len(found) {
	case 0:
		return bundle.Resolver{}, nil
	case 1:
		return found[0], nil
	}
	return bundle.Resolver{}, errors.New("tasks come from one place: give one of --from-namespace, --from-bundle, --from-hub and --from-git")
}

func runPrintPipelines(w io.Writer, from sources) error {
	resolver, err := from.resolver()
	if err != nil {
		return err
	}
	objects, err := bundle.Pipelines(resolver)
	if err != nil {
		return err
	}
	return printAll(w, objects)
}

func runPrintTasks(w io.Writer, o options) error {
	images, err := stepImages(o)
	if err != nil {
		return err
	}
	objects, err := bundle.Tasks(images)
	if err != nil {
		return err
	}
	if o.out == "" {
		return printAll(w, objects)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", o.out, err)
	}
	for _, object := range objects {
		text, err := object.YAML()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.out, object.Name+".yaml"), text, 0o644); err != nil { //nolint:gosec // for a repository
			return fmt.Errorf("writing %s: %w", object.Name, err)
		}
	}
	return nil
}

func printAll(w io.Writer, objects []bundle.Object) error {
	for _, object := range objects {
		text, err := object.YAML()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return fmt.Errorf("printing %s: %w", object.Name, err)
		}
	}
	return nil
}
