// Package credentials reads a VMI's access credentials, SSH keys and passwords, from the
// Secrets that are mounted in its launcher pod, and gives them to the guest through its agent.
package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/guestagent"
)

// Wanted is what the guest's agent is to set.
type Wanted struct {
	// Keys are the authorized keys of each user, Passwords the passwords.
	Keys      map[string][]string
	Passwords map[string]string
}

// ThroughAgent says whether the credential at this place of the list is the agent's to set.
func ThroughAgent(credential v1.AccessCredential) bool {
	if key := credential.SSHPublicKey; key != nil {
		return key.PropagationMethod.QemuGuestAgent != nil
	}
	password := credential.UserPassword
	return password != nil && password.PropagationMethod.QemuGuestAgent != nil
}

// Dir is the folder under root with the Secret of the credential at place i of the list.
func Dir(root string, i int) string { return filepath.Join(root, strconv.Itoa(i)) }

// Read returns what the agent is to set by list, whose Secrets are below root.
func Read(root string, list []v1.AccessCredential) (Wanted, error) {
	wanted := Wanted{Keys: map[string][]string{}, Passwords: map[string]string{}}
	for i, credential := range list {
		if !ThroughAgent(credential) {
			continue
		}
		content, err := readSecret(Dir(root, i))
		if err != nil {
			return wanted, fmt.Errorf("reading the Secret of accessCredentials[%d]: %w", i, err)
		}
		if credential.UserPassword != nil {
			for user, password := range content {
				wanted.Passwords[user] = strings.TrimRight(password, "\r\n")
			}
			continue
		}
		for _, user := range credential.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users {
			wanted.Keys[user] = append(wanted.Keys[user], keys(content)...)
		}
	}
	return wanted, nil
}

// CloudInitKeys are the SSH keys that the guest gets by cloud-init, of which it has one volume.
func CloudInitKeys(root string, list []v1.AccessCredential) ([]string, error) {
	var all []string
	for i, credential := range list {
		if !byCloudInit(credential) {
			continue
		}
		content, err := readSecret(Dir(root, i))
		if err != nil {
			return nil, fmt.Errorf("reading the Secret of accessCredentials[%d]: %w", i, err)
		}
		all = append(all, keys(content)...)
	}
	return all, nil
}

func byCloudInit(credential v1.AccessCredential) bool {
	if credential.SSHPublicKey == nil {
		return false
	}
	method := credential.SSHPublicKey.PropagationMethod
	return method.NoCloud != nil || method.ConfigDrive != nil
}

// keys are the keys in all values of a Secret, in the order of the values' names.
func keys(content map[string]string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(content)) {
		for line := range strings.Lines(content[name]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				found = append(found, line)
			}
		}
	}
	return found
}

// readSecret returns the values of a Secret that the kubelet mounted at dir, all of one
// version: they are in a folder behind a link, which the kubelet replaces at once.
func readSecret(dir string) (map[string]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening its folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	data, err := root.OpenRoot(kubeletData)
	if err != nil {
		return nil, fmt.Errorf("opening its folder: %w", err)
	}
	defer func() { _ = data.Close() }()
	entries, err := fs.ReadDir(data.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("listing its keys: %w", err)
	}
	content := map[string]string{}
	for _, entry := range entries {
		value, err := data.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading key %s: %w", entry.Name(), err)
		}
		content[entry.Name()] = string(value)
	}
	return content, nil
}

// maxWords bounds what is kept of an agent's words about a failure, in bytes.
const maxWords = 1024

// Give has the guest's agent set all that is wanted. It goes on after a failure, so that
// one user that the guest lacks does not keep others out. What the agent says of a failure
// is bounded and holds no password, whatever the guest is.
func Give(ctx context.Context, channel guestagent.Channel, wanted Wanted) error {
	var errs []error
	for _, user := range slices.Sorted(maps.Keys(wanted.Keys)) {
		errs = append(errs, guestagent.SetAuthorizedKeys(ctx, channel, user, wanted.Keys[user]))
	}
	for _, user := range slices.Sorted(maps.Keys(wanted.Passwords)) {
		errs = append(errs, guestagent.SetPassword(ctx, channel, user, wanted.Passwords[user]))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.New(wanted.clean(err.Error()))
	}
	return nil
}

// clean takes the passwords out of an agent's words.
func (w Wanted) clean(words string) string {
	for _, password := range w.Passwords {
		for _, form := range []string{password, base64.StdEncoding.EncodeToString([]byte(password))} {
			if form != "" {
				words = strings.ReplaceAll(words, form, "…")
			}
		}
	}
	return strings.ToValidUTF8(words[:min(len(words), maxWords)], "")
}
