// Package task writes what is generated from the declarations of the provisioning
// tasks: the Tekton manifests, the README and the hub's metadata of each.
package task

import (
	"fmt"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/generate/output"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Generate writes the generated files of each task into its folder under root.
func Generate(files *output.Files, root string, tasks []*declare.Task) error {
	for _, t := range tasks {
		made, err := t.Files()
		if err != nil {
			return fmt.Errorf("generating the files of task %s: %w", t.Name, err)
		}
		for name, data := range made {
			if err := files.File(filepath.Join(root, t.Name, name), data); err != nil {
				return err
			}
		}
	}
	return nil
}
