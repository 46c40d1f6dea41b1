// Package diskvirtsysprep makes the disk of a claim ready to be cloned, with virt-sysprep.
package diskvirtsysprep

import (
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/guestfs"
)

var tool = guestfs.Tool{Name: "virt-sysprep", OldCommands: "sysprepCommands"}

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "disk-virt-sysprep",
		Title:   "Sysprep a disk",
		Summary: "Runs virt-sysprep on the disk of a PersistentVolumeClaim: takes away host keys, logs, machine ids and whatever else makes a guest one of a kind, then customizes it.",
		Details: tool.Details(),
		Image:   declare.Guestfs,
		Params:  tool.Params("update"),
		Results: tool.Results(),
		Rules:   tool.Rules(),
		// The field's task needs no rights: a run with none goes on.
		ClientOptional: true,
		Disk:           "pvc",
		Data:           10,
		Examples: []declare.Example{{
			Title: "Make a disk ready to be cloned",
			Params: map[string]any{
				"pvc":                   "example-disk",
				"virtCommands":          "hostname golden\n",
				"additionalVirtOptions": "--operations defaults,-ssh-userdir",
			},
		}},
		Run: tool.Run,
	}
}
