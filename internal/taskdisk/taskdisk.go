// Package taskdisk is what the pods of provisioning tasks and the webhook that fits them to
// their claims agree on. A Tekton Task can mount a claim only as a file system; for a Block
// claim the webhook turns the mount into a device, and the program takes what it finds.
package taskdisk

import "github.com/slipway-vm/slipway/internal/names"

const (
	// Label is on every Task that works on the disk of a claim; Tekton hands it on to the pods.
	Label = names.Domain + "task-disk"
	// Volume is the label's value and the name of the pod's volume with that claim.
	Volume = "targetpvc"
	// Mount is where the volume of a Filesystem claim appears, with the disk as names.DiskFile.
	Mount = "/mnt/targetpvc"
	// Device is where the volume of a Block claim appears.
	Device = "/dev/targetpvc"
)
