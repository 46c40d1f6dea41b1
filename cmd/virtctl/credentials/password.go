package credentials

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	virtv1 "kubevirt.io/api/core/v1"
)

// setPassword are the flags of set-password.
type setPassword struct {
	target
	password string
}

func newSetPasswordCommand(cluster Cluster) *cobra.Command {
	o := &setPassword{}
	command := &cobra.Command{
		Use:   "set-password VM",
		Short: "Sets the password of a user",
		Long:  "Sets the password of a user in the Secret that a VM names for passwords.",
		Example: `  # Set the password of the user "admin" of the VM "web":
  virtctl credentials set-password --user admin --password "$PASSWORD" web`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, cluster, args[0]) },
	}
	o.addFlags(command)
	command.Flags().StringVarP(&o.password, "password", "p", "", "The password.")
	_ = command.MarkFlagRequired("password")
	return command
}

func (o *setPassword) run(cmd *cobra.Command, cluster Cluster, name string) error {
	c, vm, err := machine(cmd.Context(), cluster, name)
	if err != nil {
		return err
	}
	secrets := passwordSecrets(vm)
	if len(secrets) == 0 {
		return errors.New("no secrets assigned to UserPassword AccessCredentials")
	}
	secret, err := o.choose(secrets)
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return o.change(cmd.Context(), c, vm, secret, func(secret *corev1.Secret) {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[o.user] = []byte(o.password)
		})
	})
	if err != nil {
		return err //nolint:wrapcheck // change says it
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Successfully set password in secret %q\n", secret)
	return nil
}

// passwordSecrets are the Secrets whose passwords the agent gives to users.
func passwordSecrets(vm *virtv1.VirtualMachine) []string {
	var names []string
	for _, credential := range vm.Spec.Template.Spec.AccessCredentials {
		password := credential.UserPassword
		if password != nil && password.Source.Secret != nil && password.Source.Secret.SecretName != "" && password.PropagationMethod.QemuGuestAgent != nil {
			names = append(names, password.Source.Secret.SecretName)
		}
	}
	return names
}
