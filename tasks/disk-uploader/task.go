// Package diskuploader uploads a disk to a container registry as a containerDisk.
package diskuploader

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/slipway-vm/slipway/tasks/claim"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that the field's task ends with.
const (
	codeGeneric = 1
	codeUsage   = 2
	codeUpload  = 3
	codeResults = 4
)

// Names of parameters and results.
const (
	paramKind        = "EXPORT_SOURCE_KIND"
	paramSource      = "EXPORT_SOURCE_NAME"
	paramVolume      = "VOLUME_NAME"
	paramDestination = "IMAGE_DESTINATION"
	paramSecret      = "SECRET_NAME"
	paramTimeout     = "PUSH_TIMEOUT"
	paramPlain       = "PLAIN_HTTP"

	resultDigest      = "digest"
	resultImageURL    = "IMAGE_URL"
	resultImageDigest = "IMAGE_DIGEST"
)

// secretPath is where the Secret's keys appear as files.
const secretPath = "/data/registrysecret"

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "disk-uploader",
		Title:   "Upload a disk to a registry",
		Summary: "Uploads the disk of a stopped VirtualMachine or of a PersistentVolumeClaim to a container registry, as a containerDisk that VMs of any cluster can boot from.",
		Details: details,
		Image:   declare.Slipway,
		Memory:  "128Mi",
		Disk:    paramVolume,
		Secret:  &declare.SecretMount{Param: paramSecret, Path: secretPath},
		Params: []declare.Param{
			{Name: paramKind, Description: "What the disk is of: `vm` or `pvc`.", Required: true},
			{Name: paramSource, Description: "Name of the VirtualMachine or PersistentVolumeClaim.", Required: true},
			{Name: paramVolume, Description: "Name of the disk's PersistentVolumeClaim. For kind `pvc` it is that of the source, for `vm` a claim or DataVolume of the VM.", Required: true, Object: declare.Claim},
			{Name: paramDestination, Description: "Where the image goes, such as `registry.example.com/images/golden:v1`.", Required: true},
			{Name: paramTimeout, Description: "How many minutes the task may take, with the wait for the VM to be stopped.", Default: "120"},
			{Name: paramSecret, Description: "Secret with the registry's credentials: `accessKeyId` is the user, `secretKey` the password, and `ca.crt` (optional) the authority of a private registry's certificate.", Required: true, Object: declare.Secret},
			{Name: paramPlain, Description: "Speak to a registry that has no TLS.", Default: "false", Kind: "boolean"},
		},
		Results: []declare.Result{
			{Name: resultDigest, Description: "The image's digest."},
			{Name: resultImageURL, Description: "The image with its tag, for the provenance that Tekton Chains writes."},
			{Name: resultImageDigest, Description: "The image's digest, for the same."},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get"}},
			claim.Rule,
		},
		Examples: []declare.Example{{
			Title: "Upload the disk of a stopped VM",
			Params: map[string]any{
				paramKind: "vm", paramSource: "golden", paramVolume: "golden-root",
				paramDestination: "registry.example.com/images/golden:v1", paramSecret: "registry-credentials",
			},
		}},
		Run: run,
	}
}

const details = `
The image has one layer with the disk as qcow2, owned by user 107. It is made while it is sent: the disk is read twice, once
for what is in it and once for its content, nothing is kept on the way, and memory stays below 100 MiB, whatever the disk's
size. The same disk always gives the same image. Where a connection breaks, the last 8 MiB are sent again; a registry that
is away for a while is waited for with growing pauses. Where a registry takes no chunks, the layer is one stream.

A disk that a VM uses is waited for until the VM is stopped. No copy and no VirtualMachineExport is made: the task's pod mounts
the claim itself, so it runs where the claim can be mounted. The claim may be a file system with a disk.img or, where
Slipway's webhook is installed, a block device. A source of kind vmsnapshot is refused.

The labels instancetype.kubevirt.io/default-instancetype, -instancetype-kind, -preference and -preference-kind of the claim become
environment variables of the image, from which importers take them again.

Exit codes: 1 the source is not as it must be, 2 a parameter or the Secret is wrong, 3 the upload failed, 4 a result could
not be written.`
