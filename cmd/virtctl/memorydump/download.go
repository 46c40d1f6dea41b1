package memorydump

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/vmexport"
	"github.com/slipway-vm/slipway/internal/await"
)

// Flags of vmexport.Download that mean something here, too.
const (
	flagOutput = "output"
	flagFormat = "format"
)

// wait is how long a dump that goes on is waited for.
const wait = 10 * time.Minute

// errNone says that there is nothing to download.
var errNone = errors.New("the VM has no memory dump: ask for one with virtctl memory-dump get")

func newDownloadCommand(cluster Cluster) *cobra.Command {
	var download vmexport.Download
	command := &cobra.Command{
		Use: "download NAME", Short: "Downloads the last memory dump of a VM",
		Long: `Downloads the last dump of the memory of the VM's guest, when it is whole: as a tar.gz archive of all that is on its claim, or with
--format=raw the file of the last dump itself. A VirtualMachineExport of the claim is made for it, and deleted.`,
		Example: `  # Download the last dump of the VM "web" with what else is on its claim:
  virtctl memory-dump download web --output=web.dump.tar.gz
  # The file of the dump alone:
  virtctl memory-dump download web --format=raw --output=web.dump`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := download.Validate(); err != nil {
				return err
			}
			return fetch(cmd, cluster, args[0], &download)
		},
	}
	download.AddFlags(command.Flags())
	return command
}

// fetch downloads the dump of the VM called machine when it is whole.
func fetch(cmd *cobra.Command, cluster Cluster, machine string, download *vmexport.Download) error {
	request, err := awaitDump(cmd.Context(), cluster, machine)
	if err != nil {
		return err
	}
	if format, err := cmd.Flags().GetString(flagFormat); err == nil && format == "raw" {
		if download.File = ptr.Deref(request.FileName, ""); download.File == "" {
			return fmt.Errorf("the status of VirtualMachine %s does not name the file of the dump; leave out --format", machine)
		}
	}
	name := "memory-dump-" + strings.TrimRight(machine[:min(len(machine), maxMachine)], "-.") + "-" + strings.ToLower(rand.Text()[:8])
	return download.OfClaim(cmd, cluster, name, request.ClaimName)
}

// maxMachine is how much of a VM's name is in that of an export.
const maxMachine = 30

// awaitDump returns the request of the last dump when that is whole.
func awaitDump(ctx context.Context, cluster Cluster, machine string) (*virtv1.VirtualMachineMemoryDumpRequest, error) {
	c, err := cluster.Client()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was doing
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var request *virtv1.VirtualMachineMemoryDumpRequest
	key := client.ObjectKey{Namespace: namespace, Name: machine}
	err = await.Object(bounded, c, &virtv1.VirtualMachineList{}, key, func(vm *virtv1.VirtualMachine, exists bool) (bool, error) {
		if !exists {
			return false, fmt.Errorf("VirtualMachine %s does not exist", key)
		}
		if request = vm.Status.MemoryDumpRequest; request == nil {
			return false, errNone
		}
		switch request.Phase {
		case virtv1.MemoryDumpCompleted:
			return true, nil
		case virtv1.MemoryDumpFailed:
			return false, fmt.Errorf("the memory dump failed: %s", request.Message)
		case virtv1.MemoryDumpDissociating:
			return false, errNone
		}
		return false, nil
	})
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		phase := ptr.Deref(request, virtv1.VirtualMachineMemoryDumpRequest{}).Phase
		return nil, fmt.Errorf("the memory dump of VirtualMachine %s is still %s after %s; download it later", key, phase, wait)
	}
	return request, err //nolint:wrapcheck // it says what it was doing
}

// said is where cmd tells what it did: not where the dump goes.
func said(cmd *cobra.Command) io.Writer {
	if to, err := cmd.Flags().GetString(flagOutput); err == nil && to == "-" {
		return cmd.ErrOrStderr()
	}
	return cmd.OutOrStdout()
}
