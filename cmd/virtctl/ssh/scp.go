package ssh

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newSCPCommand(cluster Cluster) *cobra.Command {
	o := &options{}
	var recursive, preserve bool
	command := &cobra.Command{
		Use:   "scp SOURCE TARGET",
		Short: "Copies files to a VM or from it",
		Long: `Copies files to a VM or a VMI, or from it, with the local program scp. One of SOURCE and TARGET is a local path, the
other [USER@]TYPE/NAME[/NAMESPACE]:PATH.`,
		Example: `  # Copy a file to the home folder of admin in the VM "web":
  virtctl scp page.html admin@vm/web:page.html

  # Copy a folder from there:
  virtctl scp --recursive admin@vm/web/shop:/var/log ./log`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, path, local, toGuest, err := splitPaths(args[0], args[1])
			if err != nil {
				return err
			}
			t, err := o.resolve(cluster, remote)
			if err != nil {
				return err
			}
			var words []string
			if recursive {
				words = append(words, "-r")
			}
			if preserve {
				words = append(words, "-p")
			}
			if toGuest {
				return o.run(cmd, "scp", t, append(words, local, o.login(t)+":"+path))
			}
			return o.run(cmd, "scp", t, append(words, o.login(t)+":"+path, local))
		},
	}
	o.addFlags(command.Flags())
	command.Flags().BoolVarP(&recursive, "recursive", "r", false, "Copy folders with what is in them.")
	command.Flags().BoolVar(&preserve, "preserve", false, "Keep times and modes.")
	return command
}

// splitPaths finds which of the two is in the guest.
func splitPaths(source, target string) (remote, path, local string, toGuest bool, err error) {
	_, _, from := strings.Cut(source, ":")
	_, _, toGuest = strings.Cut(target, ":")
	switch {
	case from && toGuest:
		err = fmt.Errorf("copying from a remote location to another remote location is not supported: %q to %q", source, target)
	case !from && !toGuest:
		err = fmt.Errorf("none of the two provided locations seems to be a remote location: %q to %q", source, target)
	case toGuest:
		local = source
		remote, path, _ = strings.Cut(target, ":")
	default:
		local = target
		remote, path, _ = strings.Cut(source, ":")
	}
	return remote, path, local, toGuest, err
}

// splitUser takes the user off [user@]target.
func splitUser(text string) (user, target string, err error) {
	user, target, named := strings.Cut(text, "@")
	switch {
	case !named:
		return "", text, nil
	case user == "":
		return "", "", errors.New("expected username before '@'")
	case target == "":
		return "", "", errors.New("expected target after '@'")
	}
	return user, target, nil
}
