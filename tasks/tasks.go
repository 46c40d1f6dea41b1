// Package tasks lists every provisioning task of Slipway and embeds what Tekton needs
// to run them. tasks/declare says what a task is; a folder each holds one.
package tasks

import (
	"embed"

	checkvalue "github.com/slipway-vm/slipway/tasks/check-value"
	cleanupvm "github.com/slipway-vm/slipway/tasks/cleanup-vm"
	copytemplate "github.com/slipway-vm/slipway/tasks/copy-template"
	createdatavolumefrommanifest "github.com/slipway-vm/slipway/tasks/create-datavolume-from-manifest"
	createvmfrommanifest "github.com/slipway-vm/slipway/tasks/create-vm-from-manifest"
	createvmfromtemplate "github.com/slipway-vm/slipway/tasks/create-vm-from-template"
	"github.com/slipway-vm/slipway/tasks/declare"
	diskuploader "github.com/slipway-vm/slipway/tasks/disk-uploader"
	diskvirtcustomize "github.com/slipway-vm/slipway/tasks/disk-virt-customize"
	diskvirtsysprep "github.com/slipway-vm/slipway/tasks/disk-virt-sysprep"
	executeinvm "github.com/slipway-vm/slipway/tasks/execute-in-vm"
	generatesshkeys "github.com/slipway-vm/slipway/tasks/generate-ssh-keys"
	modifydataobject "github.com/slipway-vm/slipway/tasks/modify-data-object"
	modifyvmtemplate "github.com/slipway-vm/slipway/tasks/modify-vm-template"
	modifywindowsisofile "github.com/slipway-vm/slipway/tasks/modify-windows-iso-file"
	restorestepcache "github.com/slipway-vm/slipway/tasks/restore-step-cache"
	waitforvmistatus "github.com/slipway-vm/slipway/tasks/wait-for-vmi-status"
)

// Manifests holds the generated task.yaml of every task, without a namespace.
//
//go:embed */task.yaml
var Manifests embed.FS

// All returns every task, by name.
func All() []*declare.Task {
	return []*declare.Task{
		checkvalue.Task(),
		cleanupvm.Task(),
		copytemplate.Task(),
		createdatavolumefrommanifest.Task(),
		createvmfrommanifest.Task(),
		createvmfromtemplate.Task(),
		diskuploader.Task(),
		diskvirtcustomize.Task(),
		diskvirtsysprep.Task(),
		executeinvm.Task(),
		generatesshkeys.Task(),
		modifydataobject.Task(),
		modifyvmtemplate.Task(),
		modifywindowsisofile.Task(),
		restorestepcache.Task(),
		waitforvmistatus.Task(),
	}
}
