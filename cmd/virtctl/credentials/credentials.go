// Package credentials has the verbs that change how users log in to a guest: the SSH keys and passwords
// in the Secrets that a VirtualMachine names in its accessCredentials.
package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the group of verbs.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "credentials",
		Short: "Changes the SSH keys and passwords of a VM",
		Long: `Changes the SSH keys and passwords in the Secrets that a VM names in accessCredentials. The agent in the guest
gives them to its users, also while it runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newAddKeyCommand(cluster), newRemoveKeyCommand(cluster), newSetPasswordCommand(cluster))
	return command
}

// target are the flags that every verb has.
type target struct {
	user, secret string
	force        bool
}

func (t *target) addFlags(command *cobra.Command) {
	command.Flags().StringVarP(&t.user, "user", "u", "", "Name of the user in the guest.")
	command.Flags().StringVar(&t.secret, "secret", "", "Name of the Secret, where the VM names several.")
	command.Flags().BoolVar(&t.force, "force", false, "Change a Secret also when it does not belong to this VM alone.")
	_ = command.MarkFlagRequired("user")
}

// machine reads the VM of that name.
func machine(ctx context.Context, cluster Cluster, name string) (client.Client, *virtv1.VirtualMachine, error) {
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, nil, err
	}
	c, err := cluster.Client()
	if err != nil {
		return nil, nil, err
	}
	vm := &virtv1.VirtualMachine{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vm); err != nil {
		return nil, nil, fmt.Errorf("error getting virtual machine: %w", err)
	}
	if vm.Spec.Template == nil {
		return nil, nil, fmt.Errorf("virtual machine %s has no spec.template, so it names no Secrets", name)
	}
	return c, vm, nil
}

// choose returns the one of secrets, which are not none, that the flags mean.
func (t *target) choose(secrets []string) (string, error) {
	switch {
	case t.secret == "" && len(secrets) > 1:
		return "", errors.New("multiple secrets specified, use option --secret to specify which secret to modify")
	case t.secret == "":
		return secrets[0], nil
	case !slices.Contains(secrets, t.secret):
		return "", fmt.Errorf("secret %s was not assigned", t.secret)
	}
	return t.secret, nil
}

// change reads a Secret of vm, changes it, and writes what changed. It leaves Secrets alone that other VMs may use, too.
func (t *target) change(ctx context.Context, c client.Client, vm *virtv1.VirtualMachine, name string, change func(*corev1.Secret)) error {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, secret); err != nil {
		return fmt.Errorf("error getting secret %q: %w", name, err)
	}
	if !t.force && !belongs(secret, vm) {
		return fmt.Errorf("secret %s does not have an owner reference pointing to VM %s; use --force if no other VM uses it", name, vm.Name)
	}
	before := secret.DeepCopy()
	if change(secret); maps.EqualFunc(before.Data, secret.Data, bytes.Equal) {
		return nil
	}
	if err := c.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("error patching secret %q: %w", name, err)
	}
	return nil
}

func belongs(secret *corev1.Secret, vm *virtv1.VirtualMachine) bool {
	return slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == virtv1.VirtualMachineGroupVersionKind.Kind && owner.Name == vm.Name && owner.UID == vm.UID
	})
}
