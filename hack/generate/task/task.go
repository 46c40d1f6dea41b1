// Package task writes what is generated from the declarations of the provisioning
// tasks: the Tekton manifests and the README of each.
package task

import (
	"fmt"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/generate/output"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Generate writes task.yaml and README.md of each task into its folder under root.
func Generate(files *output.Files, root string, tasks []*declare.Task) error {
	for _, t := range tasks {
		manifest, err := t.YAML()
		if err != nil {
			return fmt.Errorf("generating task %s: %w", t.Name, err)
		}
		readme, err := t.README()
		if err != nil {
			return fmt.Errorf("generating the README of task %s: %w", t.Name, err)
		}
		for name, data := range map[string][]byte{"task.yaml": manifest, "README.md": []byte(readme)} {
			if err := files.File(filepath.Join(root, t.Name, name), data); err != nil {
				return err
			}
		}
	}
	return nil
}
