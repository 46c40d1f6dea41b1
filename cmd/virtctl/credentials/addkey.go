package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// addKey are the flags of add-ssh-key.
type addKey struct {
	target
	key            publicKey
	create, update bool
}

func newAddKeyCommand(cluster Cluster) *cobra.Command {
	o := &addKey{}
	command := &cobra.Command{
		Use:   "add-ssh-key VM",
		Short: "Adds an SSH key to those of a user",
		Long: `Adds an SSH public key to the Secret that a VM names for a user. Where it names none, a Secret is made and the VM
is told of it, which takes effect when it starts the next time: so a VM that runs is refused without --force.`,
		Example: `  # Add a key for the user "admin" of the VM "web":
  virtctl credentials add-ssh-key --user admin --file ~/.ssh/id_ed25519.pub web

  # In a Secret of its own, although the VM runs:
  virtctl credentials add-ssh-key --create-secret --force --user admin --file ~/.ssh/id_ed25519.pub web`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, cluster, args[0]) },
	}
	o.addFlags(command)
	o.key.addFlags(command)
	command.Flags().BoolVar(&o.create, "create-secret", false, "Make a new Secret for the key.")
	command.Flags().BoolVar(&o.update, "update-secret", false, "Add the key to a Secret that is there, and never make one.")
	command.MarkFlagsMutuallyExclusive("create-secret", "update-secret")
	return command
}

func (o *addKey) run(cmd *cobra.Command, cluster Cluster, name string) error {
	key, err := o.key.read()
	if err != nil {
		return err
	}
	c, vm, err := machine(cmd.Context(), cluster, name)
	if err != nil {
		return err
	}
	secrets := keySecrets(vm, o.user)
	if o.create || len(secrets) == 0 && !o.update {
		return o.newSecret(cmd, c, vm, key)
	}
	if len(secrets) == 0 {
		return fmt.Errorf("no secrets specified for user: %s", o.user)
	}
	secret, err := o.choose(secrets)
	if err != nil {
		return err
	}
	known := false
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return o.change(cmd.Context(), c, vm, secret, func(secret *corev1.Secret) {
			if known = hasKey(secret, key); known {
				return
			}
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[newName()] = []byte(key)
		})
	})
	switch {
	case err != nil:
		return err //nolint:wrapcheck // change says it
	case known:
		fmt.Fprintf(cmd.OutOrStdout(), "Secret %q already contains this SSH key.\n", secret)
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "Successfully added the key to secret %q\n", secret)
	}
	return nil
}

func hasKey(secret *corev1.Secret, key string) bool {
	for _, data := range secret.Data {
		for line := range strings.SplitSeq(string(data), "\n") {
			if holds(line, key) {
				return true
			}
		}
	}
	return false
}

// newSecret makes a Secret that belongs to vm, and tells vm of it.
func (o *addKey) newSecret(cmd *cobra.Command, c client.Client, vm *virtv1.VirtualMachine, key string) error {
	ctx := cmd.Context()
	if !o.force {
		err := c.Get(ctx, client.ObjectKeyFromObject(vm), &virtv1.VirtualMachineInstance{})
		if err == nil {
			return fmt.Errorf("virtual machine %s is running. Use --force flag to update a running VM, it will take effect after restart", vm.Name)
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("error when getting virtual machine instance: %w", err)
		}
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, GenerateName: vm.Name + "-" + keyPrefix,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
		},
		Data: map[string][]byte{newName(): []byte(key)},
	}
	secret.OwnerReferences[0].BlockOwnerDeletion = nil // which would take the right to change the VM's finalizers
	if err := c.Create(ctx, secret); err != nil {
		return fmt.Errorf("error creating secret: %w", err)
	}
	if err := o.assign(ctx, c, vm, secret.Name); err != nil {
		err = fmt.Errorf("error patching virtual machine: %w", err)
		if left := client.IgnoreNotFound(c.Delete(ctx, secret)); left != nil {
			err = errors.Join(err, fmt.Errorf("deleting secret %s again: %w", secret.Name, left))
		}
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Successfully added the key to secret %q\n", secret.Name)
	return nil
}

// assign has vm give the keys of the Secret to the user.
func (o *addKey) assign(ctx context.Context, c client.Client, vm *virtv1.VirtualMachine, secret string) error {
	credential := virtv1.AccessCredential{SSHPublicKey: &virtv1.SSHPublicKeyAccessCredential{
		Source: virtv1.SSHPublicKeyAccessCredentialSource{Secret: &virtv1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: virtv1.SSHPublicKeyAccessCredentialPropagationMethod{
			QemuGuestAgent: &virtv1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{o.user}},
		},
	}}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { //nolint:wrapcheck // the caller says what was done
		if err := c.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return err //nolint:wrapcheck // as above
		}
		before := vm.DeepCopy()
		if vm.Spec.Template == nil {
			return errors.New("it has no spec.template any more")
		}
		vm.Spec.Template.Spec.AccessCredentials = append(vm.Spec.Template.Spec.AccessCredentials, credential)
		return c.Patch(ctx, vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) //nolint:wrapcheck // as above
	})
}
