// Package diskvirtcustomize customizes the disk of a claim with virt-customize.
package diskvirtcustomize

import (
	"context"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/guestfs"
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "disk-virt-customize",
		Title:   "Customize a disk",
		Summary: "Runs virt-customize on the disk of a PersistentVolumeClaim: installs packages, edits files, sets passwords, without booting it.",
		Details: guestfs.Details("virt-customize"),
		Image:   declare.Guestfs,
		Params:  guestfs.Params("virt-customize", "update"),
		Disk:    "pvc",
		Data:    10,
		Examples: []declare.Example{{
			Title: "Write a file and set the time zone",
			Params: map[string]any{
				"pvc":          "example-disk",
				"virtCommands": "write /etc/motd:Welcome\ntimezone Europe/Vienna\n",
			},
		}},
		Run: func(ctx context.Context, call *declare.Call) error {
			return guestfs.Run(ctx, call, "virt-customize")
		},
	}
}
