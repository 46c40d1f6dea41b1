// Package remote runs commands in a VM over SSH, with the connection Secret that the
// field's tasks use.
package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// SecretPath is where a generated Task mounts the connection Secret.
const SecretPath = "/data/connectionsecret"

// connectTimeout bounds one attempt to connect.
const connectTimeout = 15 * time.Second

// Access is how to log in to a VM.
type Access struct {
	User string
	Port int
	// Signer holds the private key.
	Signer ssh.Signer
	// HostKeys are the keys of which the VM must show one; nil when it need not show any.
	HostKeys []ssh.PublicKey
	Timeout  time.Duration
}

// ReadSecret reads the keys of a connection Secret, mounted at dir:
//
//	type                              "ssh"; may be left out when the Secret's own type is kubernetes.io/ssh-auth
//	user                              whom to log in as
//	ssh-privatekey                    the private key (also ssh-private-key)
//	host-public-key                   the VM's key, or
//	disable-strict-host-key-checking  "true"
//	additional-ssh-options            such as "-p 2222"
func ReadSecret(dir string) (*Access, error) {
	secret, err := readKeys(dir)
	if err != nil {
		return nil, err
	}
	return parseSecret(secret)
}

// readKeys reads the files of a mounted Secret. The kubelet makes them links inside the same folder.
func readKeys(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading connection secret: %w", err)
	}
	keys := map[string]string{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading key %s of connection secret: %w", entry.Name(), err)
		}
		keys[entry.Name()] = string(data)
	}
	return keys, nil
}

func parseSecret(secret map[string]string) (*Access, error) {
	private := secret["ssh-privatekey"]
	if private == "" {
		private = secret["ssh-private-key"]
	}
	switch kind := strings.TrimSpace(secret["type"]); {
	case len(secret) == 0:
		return nil, errors.New("type secret attribute is required: the connection secret does not exist, or is empty")
	case kind == "" && secret["ssh-privatekey"] == "":
		return nil, errors.New("type secret attribute is required")
	case kind != "" && kind != "ssh":
		return nil, fmt.Errorf("%s is invalid type; ssh is the one known", kind)
	case private == "":
		return nil, errors.New("ssh-privatekey secret attribute is required")
	case strings.TrimSpace(secret["user"]) == "":
		return nil, errors.New("user secret attribute is required")
	}
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return nil, fmt.Errorf("ssh-privatekey secret attribute is no private key without a passphrase: %w", err)
	}
	access := &Access{User: strings.TrimSpace(secret["user"]), Port: 22, Signer: signer, Timeout: connectTimeout}
	if err := access.readHostKeys(secret); err != nil {
		return nil, err
	}
	if err := access.readOptions(secret["additional-ssh-options"]); err != nil {
		return nil, err
	}
	return access, nil
}

func (a *Access) readHostKeys(secret map[string]string) error {
	keys := []byte(secret["host-public-key"])
	loose := strings.TrimSpace(secret["disable-strict-host-key-checking"]) == "true"
	if len(keys) == 0 && !loose {
		return errors.New("host-public-key or disable-strict-host-key-checking=true secret attribute is required")
	}
	for len(strings.TrimSpace(string(keys))) > 0 {
		key, _, _, rest, err := ssh.ParseAuthorizedKey(keys)
		if err != nil {
			return fmt.Errorf("host-public-key secret attribute is no public key, such as \"ssh-ed25519 AAAA…\": %w", err)
		}
		a.HostKeys = append(a.HostKeys, key)
		keys = rest
	}
	return nil
}

// plainFlags are flags of ssh without a value, about what this client does anyway, or about speed and talk.
var plainFlags = []string{"-C", "-q", "-v", "-T", "-x", "-a"}

// readOptions takes the options of ssh that mean something here, and refuses the others.
func (a *Access) readOptions(text string) error {
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		flag, value := words[i], ""
		if slices.Contains(plainFlags, flag) {
			continue
		}
		switch {
		case len(flag) > 2 && (strings.HasPrefix(flag, "-p") || strings.HasPrefix(flag, "-o")):
			flag, value = flag[:2], flag[2:]
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			i++
			value = words[i]
		case flag == "-p" || flag == "-o":
			return fmt.Errorf("additional-ssh-options secret attribute: ssh option requires an argument -- %s", flag[1:])
		}
		if flag == "-o" {
			name, setting, _ := strings.Cut(value, "=")
			flag, value = strings.ToLower(name), setting
		}
		if err := a.setOption(flag, value); err != nil {
			return fmt.Errorf("additional-ssh-options secret attribute: %w", err)
		}
	}
	return nil
}

func (a *Access) setOption(option, value string) error {
	number, err := strconv.Atoi(value)
	switch option {
	case "-p", "port":
		if err != nil || number < 1 || number > 65535 {
			return fmt.Errorf("Bad port '%s'; write a number from 1 to 65535", value) //nolint:staticcheck // ssh's own words, which clients match
		}
		a.Port = number
	case "connecttimeout":
		if err != nil || number < 1 {
			return fmt.Errorf("ConnectTimeout: %q is no number of seconds", value)
		}
		a.Timeout = time.Duration(number) * time.Second
	case "stricthostkeychecking":
		if value == "no" {
			a.HostKeys = nil
		}
	case "userknownhostsfile", "loglevel", "batchmode":
		// about files and talk that this client does not have
	default:
		return fmt.Errorf("option %s is not supported; -p, -o Port, ConnectTimeout and StrictHostKeyChecking are", option)
	}
	return nil
}
