// Package ssh has the verbs ssh and scp. They run the programs of that name, and give them this one in
// the place of a network: it leads them to the guest's port through the API server.
package ssh

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-vm/slipway/cmd/virtctl/portforward"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	Namespace() (string, error)
}

// NewCommands returns the verbs.
func NewCommands(cluster Cluster) []*cobra.Command {
	return []*cobra.Command{newSSHCommand(cluster), newSCPCommand(cluster)}
}

// options are the flags of both.
type options struct {
	username, identity, knownHosts string
	port                           int
	vsock                          bool
	local                          []string // of the local program
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.username, "username", "l", defaultUser(), "User in the guest.")
	flags.StringVarP(&o.identity, "identity-file", "i", "", "File of the private key; by default what the local program takes.")
	flags.StringVar(&o.knownHosts, "known-hosts", "", "File of the known hosts; by default the local program's.")
	flags.IntVarP(&o.port, "port", "p", 22, "Port of the guest.")
	flags.BoolVar(&o.vsock, "vsock", false, "Go to the port of the guest's VSOCK device, for a guest that serves SSH there. No network is needed.")
	flags.StringArrayVarP(&o.local, "local-ssh-opts", "t", nil, "Option of the local program, such as --local-ssh-opts='-o StrictHostKeyChecking=no'; may be repeated.")
}

// defaultUser is the user's own name.
func defaultUser() string {
	for _, name := range []string{"USER", "USERNAME", "LOGNAME"} {
		if user := os.Getenv(name); user != "" {
			return user
		}
	}
	return ""
}

func newSSHCommand(cluster Cluster) *cobra.Command {
	o := &options{}
	var remote string
	command := &cobra.Command{
		Use:   "ssh [USER@]TYPE/NAME[/NAMESPACE]",
		Short: "Opens an SSH session in a VM",
		Long: `Opens an SSH session in a VM or a VMI with the local program ssh. The network that its pod is in need not be reachable.

TYPE is virtualmachine (vm) or virtualmachineinstance (vmi). Known hosts are kept by the name TYPE.NAME.NAMESPACE.`,
		Example: `  # A session as admin in the VM "web":
  virtctl ssh admin@vm/web

  # One command, with a key of its own:
  virtctl ssh vm/web/shop --username admin --identity-file key --command 'systemctl is-system-running'`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := o.resolve(cluster, args[0])
			if err != nil {
				return err
			}
			words := []string{o.login(t)}
			if remote != "" {
				words = append(words, remote)
			}
			return o.run(cmd, "ssh", t, words)
		},
	}
	o.addFlags(command.Flags())
	command.Flags().StringVarP(&remote, "command", "c", "", "Command to run in the guest, instead of a shell.")
	return command
}

// resolve reads [user@]type/name[/namespace].
func (o *options) resolve(cluster Cluster, text string) (portforward.Target, error) {
	user, target, err := splitUser(text)
	if err != nil {
		return portforward.Target{}, err
	}
	if user != "" {
		o.username = user
	}
	t, err := portforward.ParseTarget(target)
	if err != nil || t.Namespace != "" {
		return t, err
	}
	t.Namespace, err = cluster.Namespace()
	return t, err
}

// login is the guest as the local program names it.
func (o *options) login(t portforward.Target) string {
	host := t.Kind + "." + t.Name + "." + t.Namespace
	if o.username == "" {
		return host
	}
	return o.username + "@" + host
}
