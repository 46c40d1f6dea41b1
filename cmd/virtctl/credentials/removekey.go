package credentials

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
)

// removeKey are the flags of remove-ssh-key.
type removeKey struct {
	target
	key publicKey
}

func newRemoveKeyCommand(cluster Cluster) *cobra.Command {
	o := &removeKey{}
	command := &cobra.Command{
		Use:   "remove-ssh-key VM",
		Short: "Removes an SSH key from those of a user",
		Long:  "Removes an SSH public key from every Secret that a VM names for a user, or from the one of --secret.",
		Example: `  # Remove a key of the user "admin" of the VM "web":
  virtctl credentials remove-ssh-key --user admin --file ~/.ssh/id_ed25519.pub web`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, cluster, args[0]) },
	}
	o.addFlags(command)
	o.key.addFlags(command)
	return command
}

func (o *removeKey) run(cmd *cobra.Command, cluster Cluster, name string) error {
	key, err := o.key.read()
	if err != nil {
		return err
	}
	c, vm, err := machine(cmd.Context(), cluster, name)
	if err != nil {
		return err
	}
	secrets := keySecrets(vm, o.user)
	if len(secrets) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "No secrets associated with user %s\n", o.user)
		return nil
	}
	if o.secret != "" {
		if !slices.Contains(secrets, o.secret) {
			return fmt.Errorf("secret %s is not associated with user %s", o.secret, o.user)
		}
		secrets = []string{o.secret}
	}
	for _, secret := range secrets {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			return o.change(cmd.Context(), c, vm, secret, func(secret *corev1.Secret) { without(secret, key) })
		})
		if err != nil && !apierrors.IsNotFound(err) { // what is gone has no key
			return err //nolint:wrapcheck // change says it
		}
	}
	return nil
}

// without takes key out of secret; a file with no other key goes as a whole.
func without(secret *corev1.Secret, key string) {
	for name, data := range secret.Data {
		lines := strings.Split(string(data), "\n")
		kept := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return holds(line, key) })
		if len(kept) == len(lines) {
			continue
		}
		if text := strings.Join(kept, "\n"); strings.TrimSpace(text) != "" {
			secret.Data[name] = []byte(text)
		} else {
			delete(secret.Data, name)
		}
	}
}
