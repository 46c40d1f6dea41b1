// Package diskvirtcustomize customizes the disk of a claim with virt-customize.
package diskvirtcustomize

import (
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/guestfs"
)

var tool = guestfs.Tool{Name: "virt-customize", OldCommands: "customizeCommands"}

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "disk-virt-customize",
		Title:   "Customize a disk",
		Summary: "Runs virt-customize on the disk of a PersistentVolumeClaim: installs packages, edits files, sets passwords, without booting it.",
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
			Title: "Write a file and set the time zone",
			Params: map[string]any{
				"pvc":          "example-disk",
				"virtCommands": "write /etc/motd:Welcome\ntimezone Europe/Vienna\n",
			},
		}},
		Run: tool.Run,
	}
}
