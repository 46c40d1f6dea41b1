package remote

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func privateKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{
		"type": "ssh", "user": "root\n", "ssh-privatekey": privateKey(t), "disable-strict-host-key-checking": "true",
		"additional-ssh-options": "-C -p 2222 -oConnectTimeout=3 -q -o StrictHostKeyChecking=no -C",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	access, err := ReadSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	if access.User != "root" || access.Port != 2222 || access.Timeout != 3*time.Second || access.HostKeys != nil {
		t.Fatalf("got %+v", access)
	}
}

func TestParseSecretRefuses(t *testing.T) {
	key := privateKey(t)
	full := func(changes map[string]string) map[string]string {
		secret := map[string]string{"type": "ssh", "user": "root", "ssh-privatekey": key, "disable-strict-host-key-checking": "true"}
		maps.Copy(secret, changes)
		return secret
	}
	cases := map[string]struct {
		secret map[string]string
		want   string
	}{
		"no type and another key name": {map[string]string{"user": "root", "ssh-private-key": key}, "type secret attribute is required"},
		"another type":                 {full(map[string]string{"type": "winrm"}), "winrm is invalid type"},
		"the type in capitals":         {full(map[string]string{"type": "Ssh"}), "Ssh is invalid type"},
		"a type alone":                 {map[string]string{"type": "ssh"}, "ssh-privatekey secret attribute is required"},
		"nothing":                      {map[string]string{}, "type secret attribute is required"},
		"no user":                      {full(map[string]string{"user": ""}), "user secret attribute is required"},
		"no key":                       {full(map[string]string{"ssh-privatekey": ""}), "ssh-privatekey secret attribute is required"},
		"no host key":                  {full(map[string]string{"disable-strict-host-key-checking": ""}), "host-public-key or disable-strict-host-key-checking=true secret attribute is required"},
		"a bad host key":               {full(map[string]string{"host-public-key": "nonsense"}), "is no public key"},
		"an unknown option":            {full(map[string]string{"additional-ssh-options": "-J jump"}), "option -J is not supported"},
		"a bad port":                   {full(map[string]string{"additional-ssh-options": "-p 70000"}), "Bad port '70000'"},
		"a port that is no number":     {full(map[string]string{"additional-ssh-options": "-p 22.0"}), "Bad port '22.0'"},
		"no port after its flag":       {full(map[string]string{"additional-ssh-options": "-p -C"}), "ssh option requires an argument -- p"},
		"no port at the end":           {full(map[string]string{"additional-ssh-options": "-C -p"}), "ssh option requires an argument -- p"},
		"a key that is none":           {full(map[string]string{"ssh-privatekey": "nonsense"}), "is no private key"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := parseSecret(c.secret); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := ReadSecret(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "does not exist, or is empty") {
		t.Fatalf("an absent secret: %v", err)
	}
}

func TestQuoteKeepsWords(t *testing.T) {
	if got := Quote([]string{"echo", "a b", "it's", "$HOME", "*"}); got != `'echo' 'a b' 'it'\''s' '$HOME' '*'` {
		t.Fatal(got)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	w := &tailWriter{limit: 5}
	for _, part := range []string{"abc", "defg", "", "hijklmnop", "q"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if w.String() != "mnopq" {
		t.Fatalf("kept %q", w.String())
	}
}

// A guest that boots refuses connections for longer than any back-off grows.
func TestConnectTriesUntilItsTimeIsOver(t *testing.T) {
	signer, err := ssh.ParsePrivateKey([]byte(privateKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	access := &Access{User: "root", Port: 1, Signer: signer, Timeout: time.Minute}
	for bound := 2 * time.Second; ; bound *= 2 { // until it is enough for an attempt
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		_, err = access.Run(ctx, slog.New(slog.DiscardHandler), "127.0.0.1", Command{Text: "true"})
		cancel()
		if err != nil && strings.Contains(err.Error(), "waited for the SSH server at 127.0.0.1") && strings.Contains(err.Error(), "refused") {
			return
		}
		if bound > time.Minute {
			t.Fatalf("got %v, want what it waited for and the last attempt's reason", err)
		}
	}
}

// The result is the end of the output, never more than its share of Tekton's 4096 bytes.
func TestFit(t *testing.T) {
	for name, text := range map[string]string{
		"plain":       strings.Repeat("abcdefgh\n", 1000),
		"control":     strings.Repeat("\x1b[0m", 2000),
		"multibyte":   strings.Repeat("ä€😀", 2000),
		"not UTF-8":   strings.Repeat("x\xff", 3000),
		"only quotes": strings.Repeat(`"`, 5000),
	} {
		got := fit(text+"end", maxOutput)
		data, err := json.Marshal(got)
		if err != nil || len(data) > maxOutput+2 || len(data) < maxOutput-20 || !strings.HasSuffix(got, "end") || strings.HasPrefix(got, "\xa4") {
			t.Errorf("%s: %d bytes of JSON, %v", name, len(data), err)
		}
	}
	if got := fit(" few words\n", maxOutput); got != "few words" {
		t.Errorf("got %q", got)
	}
}
