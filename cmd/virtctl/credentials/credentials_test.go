package credentials

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/internal/scheme"
)

type cluster struct{ client.WithWatch }

func (c cluster) Namespace() (string, error)        { return "shop", nil }
func (c cluster) Client() (client.WithWatch, error) { return c.WithWatch, nil }

func clusterOf(objects ...client.Object) cluster {
	return cluster{fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()}
}

// vmWith names a Secret for the SSH keys of admin, and one for passwords, unless they are "".
func vmWith(keys, passwords string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "web-uid"}}
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
	add := func(credential virtv1.AccessCredential) {
		vm.Spec.Template.Spec.AccessCredentials = append(vm.Spec.Template.Spec.AccessCredentials, credential)
	}
	if keys != "" {
		credential := virtv1.AccessCredential{SSHPublicKey: &virtv1.SSHPublicKeyAccessCredential{}}
		credential.SSHPublicKey.Source.Secret = &virtv1.AccessCredentialSecretSource{SecretName: keys}
		credential.SSHPublicKey.PropagationMethod.QemuGuestAgent = &virtv1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{"root", "admin"}}
		add(credential)
	}
	if passwords != "" {
		credential := virtv1.AccessCredential{UserPassword: &virtv1.UserPasswordAccessCredential{}}
		credential.UserPassword.Source.Secret = &virtv1.AccessCredentialSecretSource{SecretName: passwords}
		credential.UserPassword.PropagationMethod.QemuGuestAgent = &virtv1.QemuGuestAgentUserPasswordAccessCredentialPropagation{}
		add(credential)
	}
	return vm
}

func secret(name string, owned bool, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
	if owned {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "web", UID: "web-uid"}}
	}
	for file, text := range data {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[file] = []byte(text)
	}
	return s
}

func run(c cluster, args ...string) (string, error) {
	command := NewCommand(c)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetArgs(args)
	err := command.ExecuteContext(context.Background())
	return out.String(), err
}

// contents are the values of a Secret, in order.
func contents(t *testing.T, c cluster, name string) []string {
	t.Helper()
	found := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, found); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, data := range slices.Collect(maps.Values(found.Data)) {
		texts = append(texts, string(data))
	}
	slices.Sort(texts)
	return texts
}

const (
	mine   = "ssh-ed25519 AAAAmine"
	others = "ssh-ed25519 AAAAother other@example"
)

func TestSecretsAreChanged(t *testing.T) {
	for name, c := range map[string]struct {
		line    string
		before  *corev1.Secret
		want    []string
		prints  string
		refused string
	}{
		"a key is added":                     {"add-ssh-key -u admin --value KEY web", secret("keys", true, map[string]string{"a": others}), []string{mine, others}, `Successfully added the key to secret "keys"`, ""},
		"a key is added to nothing":          {"add-ssh-key -u admin --update-secret --value KEY web", secret("keys", true, nil), []string{mine}, `Successfully added the key to secret "keys"`, ""},
		"a key that is there stays one":      {"add-ssh-key -u admin --value KEY web", secret("keys", true, map[string]string{"a": others + "\n" + mine + " me@example\n"}), []string{others + "\n" + mine + " me@example\n"}, `Secret "keys" already contains this SSH key.`, ""},
		"another's Secret is left alone":     {"add-ssh-key -u admin --value KEY web", secret("keys", false, map[string]string{"a": others}), []string{others}, "", "secret keys does not have an owner reference pointing to VM web"},
		"but not when forced":                {"add-ssh-key -u admin --force --value KEY web", secret("keys", false, map[string]string{"a": others}), []string{mine, others}, "Successfully", ""},
		"a user without a Secret":            {"add-ssh-key -u nobody --update-secret --value KEY web", secret("keys", true, nil), nil, "", "no secrets specified for user: nobody"},
		"a Secret that is not named":         {"add-ssh-key -u admin --secret x --value KEY web", secret("keys", true, nil), nil, "", "secret x was not assigned"},
		"no key":                             {"add-ssh-key -u admin web", secret("keys", true, nil), nil, "", "one of --file, or --value must be specified"},
		"a key is removed":                   {"remove-ssh-key -u admin --value KEY web", secret("keys", true, map[string]string{"a": others + "\n" + mine + " me@example\n", "b": mine, "c": mine + "more"}), []string{mine + "more", others + "\n"}, "", ""},
		"no key is removed of another's":     {"remove-ssh-key -u admin --value KEY web", secret("keys", false, map[string]string{"b": mine}), []string{mine}, "", "does not have an owner reference"},
		"nor of one that is not named":       {"remove-ssh-key -u admin --secret x --value KEY web", secret("keys", true, map[string]string{"b": mine}), []string{mine}, "", "secret x is not associated with user admin"},
		"nobody has no keys":                 {"remove-ssh-key -u nobody --value KEY web", secret("keys", true, map[string]string{"b": mine}), []string{mine}, "No secrets associated with user nobody", ""},
		"a password is set":                  {"set-password -u admin -p new web", secret("passwords", true, map[string]string{"admin": "old", "root": "toor"}), []string{"new", "toor"}, `Successfully set password in secret "passwords"`, ""},
		"a password is set for the first":    {"set-password -u admin -p new web", secret("passwords", true, nil), []string{"new"}, "Successfully", ""},
		"another's password is left alone":   {"set-password -u admin -p new web", secret("passwords", false, nil), nil, "", "does not have an owner reference"},
		"a password needs a user":            {"set-password -p new web", secret("passwords", true, nil), nil, "", `required flag(s) "user" not set`},
		"a VM that is not there is not made": {"set-password -u admin -p new gone", secret("passwords", true, nil), nil, "", "error getting virtual machine"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := vmWith("keys", "passwords")
			c1 := clusterOf(vm, c.before)
			args := strings.Fields(c.line)
			if i := slices.Index(args, "KEY"); i >= 0 {
				args[i] = mine
			}
			out, err := run(c1, args...)
			if !strings.Contains(out, c.prints) || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, printed %q", err, out)
			}
			if got := contents(t, c1, c.before.Name); !slices.Equal(got, c.want) {
				t.Errorf("the Secret has %q, want %q", got, c.want)
			}
		})
	}
}

func TestASecretIsMadeForAKeyFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "id.pub")
	if err := os.WriteFile(file, []byte(mine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := clusterOf(vmWith("", "passwords"))
	if out, err := run(c, "add-ssh-key", "-u", "admin", "-f", file, "web"); err != nil || !strings.Contains(out, "Successfully added the key") {
		t.Fatalf("%v, printed %q", err, out)
	}
	vm := &virtv1.VirtualMachine{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, vm); err != nil {
		t.Fatal(err)
	}
	named := keySecrets(vm, "admin")
	if len(named) != 1 || len(vm.Spec.Template.Spec.AccessCredentials) != 2 || len(passwordSecrets(vm)) != 1 {
		t.Fatalf("the VM names %+v", vm.Spec.Template.Spec.AccessCredentials)
	}
	made := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: named[0]}, made); err != nil {
		t.Fatal(err)
	}
	if !belongs(made, vm) || !strings.HasPrefix(made.Name, "web-ssh-key-") || !slices.Equal(contents(t, c, made.Name), []string{mine}) {
		t.Errorf("made %+v", made)
	}
}

func TestAVMThatRunsGetsNoNewSecret(t *testing.T) {
	c := clusterOf(vmWith("", ""), &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}})
	args := []string{"add-ssh-key", "-u", "admin", "--value", mine, "web"}
	if _, err := run(c, args...); err == nil || !strings.Contains(err.Error(), "virtual machine web is running. Use --force flag to update a running VM, it will take effect after restart") {
		t.Errorf("got %v", err)
	}
	if _, err := run(c, append(args, "--force")...); err != nil {
		t.Error(err)
	}
}

// A cluster that refuses the VM's new field is left with no Secret that nobody names.
func TestARefusedSecretIsDeletedAgain(t *testing.T) {
	c := clusterOf(vmWith("", ""))
	c.WithWatch = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("spec.template.spec.accessCredentials: Forbidden")
		},
	})
	if _, err := run(c, "add-ssh-key", "-u", "admin", "--value", mine, "web"); err == nil || !strings.Contains(err.Error(), "error patching virtual machine: spec.template.spec.accessCredentials: Forbidden") {
		t.Errorf("got %v", err)
	}
	left := &corev1.SecretList{}
	if err := c.List(t.Context(), left); err != nil || len(left.Items) != 0 {
		t.Errorf("%v, left %v", err, left.Items)
	}
}
