package credentials

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"
	virtv1 "kubevirt.io/api/core/v1"
)

// keyPrefix is how the names of keys begin that a Secret is given.
const keyPrefix = "ssh-key-"

// publicKey are the flags that name an SSH key.
type publicKey struct{ file, value string }

func (k *publicKey) addFlags(command *cobra.Command) {
	command.Flags().StringVarP(&k.file, "file", "f", "", "File with the SSH public key.")
	command.Flags().StringVar(&k.value, "value", "", "The SSH public key itself.")
	command.MarkFlagsMutuallyExclusive("file", "value")
}

// read returns the key, which is one line.
func (k *publicKey) read() (string, error) {
	text := k.value
	if text == "" && k.file == "" {
		return "", errors.New("error getting ssh key: one of --file, or --value must be specified")
	}
	if text == "" {
		data, err := os.ReadFile(k.file)
		if err != nil {
			return "", fmt.Errorf("error getting ssh key: %w", err)
		}
		text = string(data)
	}
	switch text = strings.TrimSpace(text); {
	case text == "":
		return "", errors.New("error getting ssh key: there is none in it")
	case strings.Contains(text, "\n"):
		return "", errors.New("error getting ssh key: it is more than one line; name a file with one public key, such as id_ed25519.pub")
	}
	return text, nil
}

func newName() string { return keyPrefix + rand.String(6) }

// holds says whether a line of an authorized_keys file is of that key, whatever the comment behind it.
func holds(line, key string) bool {
	line = strings.TrimSpace(line)
	return line == key || strings.HasPrefix(line, key+" ")
}

// keySecrets are the Secrets whose SSH keys the agent gives to user.
func keySecrets(vm *virtv1.VirtualMachine, user string) []string {
	var names []string
	for _, credential := range vm.Spec.Template.Spec.AccessCredentials {
		keys := credential.SSHPublicKey
		if keys == nil || keys.Source.Secret == nil || keys.Source.Secret.SecretName == "" || keys.PropagationMethod.QemuGuestAgent == nil {
			continue
		}
		if slices.Contains(keys.PropagationMethod.QemuGuestAgent.Users, user) {
			names = append(names, keys.Source.Secret.SecretName)
		}
	}
	return names
}
