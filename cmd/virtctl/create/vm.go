package create

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/internal/createvm"
)

func newVMCommand(cluster Cluster) *cobra.Command {
	options := &createvm.Options{}
	command := &cobra.Command{
		Use:   "vm",
		Short: "Prints the manifest of a VirtualMachine",
		Long: `Prints the manifest of a VirtualMachine. Without --name it has a random one.

Volumes boot in the order of their bootorder. Those without one come in this order: container disks, claims, then
what is imported. Unless the size or an instance type is given, the instance type and the preference are taken
from the volume that boots first, if it has any; the memory counts where it has none.

Volumes, credentials and the like are written as name:value, with commas between them:
--volume-import type:pvc,src:images/debian,size:10Gi.

The manifest may have fields that a cluster does not act on yet; its API server says so when the VM is created.`,
		Example: vmExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			vm, warnings, err := options.VM()
			if err != nil {
				return err
			}
			vm.Namespace = cluster.GivenNamespace()
			for _, warning := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "Warning:", warning)
			}
			return write(cmd.OutOrStdout(), vm)
		},
	}
	options.AddFlags(command.Flags())
	command.Flags().SortFlags = false
	return command
}

const vmExample = `  # A VM with a random name and nothing to boot from:
  virtctl create vm

  # A VM of a container image, created at once:
  virtctl create vm --name web --memory 1Gi --volume-containerdisk src:quay.io/containerdisks/debian:12 | kubectl create -f -

  # A copy of a golden image, with its instance type and preference, and an empty second disk:
  virtctl create vm --name db --volume-import type:ds,src:images/debian,size:20Gi \
    --volume-import type:blank,size:50Gi,name:data --infer-instancetype --infer-preference

  # A copy of a claim, with a cluster's instance type and a preference of the namespace:
  virtctl create vm -n shop --instancetype u1.medium --preference virtualmachinepreference/linux \
    --volume-import type:pvc,src:images/debian

  # A claim as it is, behind a disc from a web server that boots first:
  virtctl create vm --volume-pvc src:old-disk,bootorder:2 \
    --volume-import type:http,url:https://mirror.example.com/rescue.qcow2,size:2Gi,bootorder:1

  # A user who logs in with a key, or with a password from a file:
  virtctl create vm --user admin --ssh-key "ssh-ed25519 AAAA... admin@example" --volume-containerdisk src:quay.io/containerdisks/debian:12
  virtctl create vm --user admin --password-file ./password --volume-containerdisk src:quay.io/containerdisks/debian:12

  # Keys from a Secret, which the guest agent keeps up to date:
  virtctl create vm --user admin --access-cred type:ssh,src:admin-keys --volume-pvc src:old-disk

  # Cloud-init data of your own:
  virtctl create vm --cloud-init-user-data "$(base64 -w0 user-data)" --volume-pvc src:old-disk

  # Windows with an answer file from a ConfigMap:
  virtctl create vm --memory 4Gi --volume-pvc src:windows --volume-sysprep src:unattend`
