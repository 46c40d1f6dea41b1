// Package guest has the verbs that print what a guest's agent says: guestosinfo, userlist and fslist.
package guest

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// NewCommands returns the verbs.
func NewCommands(cluster subresource.Cluster) []*cobra.Command {
	return []*cobra.Command{
		report[virtv1.VirtualMachineInstanceGuestAgentInfo]{
			verb: "guestosinfo", path: "guestosinfo", failed: "Error getting guestosinfo of VirtualMachineInstance ",
			short: "Prints what the guest's agent says of its operating system",
		}.command(cluster),
		report[virtv1.VirtualMachineInstanceGuestOSUserList]{
			verb: "userlist", path: "userlist", failed: "Error listing users of VirtualMachineInstance ",
			short:  "Prints who is logged in to the guest",
			finish: func(list *virtv1.VirtualMachineInstanceGuestOSUserList) { list.TypeMeta = metav1.TypeMeta{} },
		}.command(cluster),
		report[virtv1.VirtualMachineInstanceFileSystemList]{
			verb: "fslist", path: "filesystemlist", failed: "Error listing filesystems of VirtualMachineInstance ",
			short:  "Prints the guest's file systems",
			finish: func(list *virtv1.VirtualMachineInstanceFileSystemList) { list.TypeMeta = metav1.TypeMeta{} },
		}.command(cluster),
	}
}

// report is a verb that prints an answer as JSON.
type report[Answer any] struct {
	verb, path, short, failed string
	// finish takes out of the answer what is not printed; it may be nil.
	finish func(*Answer)
}

func (r report[Answer]) command(cluster subresource.Cluster) *cobra.Command {
	return &cobra.Command{
		Use: r.verb + " VMI", Short: r.short,
		Long:    r.short + ", as JSON. The agent is qemu-guest-agent; the VMI's condition AgentConnected tells whether it answers.",
		Example: "  virtctl " + r.verb + " web",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := subresource.Of(cluster)
			if err != nil {
				return err
			}
			data, err := api.Get(cmd.Context(), subresource.Instance(args[0]), r.path, nil)
			if err != nil {
				return subresource.Failed(r.failed+args[0]+", ", err)
			}
			return r.print(cmd, data)
		},
	}
}

func (r report[Answer]) print(cmd *cobra.Command, data []byte) error {
	var answer Answer
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	if r.finish != nil {
		r.finish(&answer)
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
	return nil
}
