package generatesshkeys

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
)

func TestGenerateMakesAPair(t *testing.T) {
	for options, c := range map[string]struct{ kind, comment, passphrase string }{
		"-t ed25519 -C me@example":             {"ssh-ed25519", "me@example", ""},
		"-t ed25519 -a 100 ":                   {"ssh-ed25519", "root@run", ""},
		"-t ecdsa -b 384 -q":                   {"ecdsa-sha2-nistp384", "root@run", ""},
		"-b 2048 -C 'two words' -N ''":         {"ssh-rsa", "two words", ""},
		`-t ed25519 -N "my long passphrase 1"`: {"ssh-ed25519", "root@run", "my long passphrase 1"},
	} {
		o, err := parseKeygenOptions(options, "root@run")
		if err != nil {
			t.Fatalf("%q: %v", options, err)
		}
		keys, err := generate(o)
		if err != nil {
			t.Fatalf("%q: %v", options, err)
		}
		signer, err := ssh.ParsePrivateKey(keys.private)
		if c.passphrase != "" {
			signer, err = ssh.ParsePrivateKeyWithPassphrase(keys.private, []byte(c.passphrase))
		}
		if err != nil {
			t.Fatalf("%q: %v", options, err)
		}
		public, comment, _, _, err := ssh.ParseAuthorizedKey(keys.public)
		if err != nil || public.Type() != c.kind || comment != c.comment || string(public.Marshal()) != string(signer.PublicKey().Marshal()) {
			t.Errorf("%q made %s, %v", options, keys.public, err)
		}
		if keys.fingerprint != ssh.FingerprintSHA256(public) {
			t.Errorf("%q: fingerprint %s", options, keys.fingerprint)
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	for options, want := range map[string]string{
		"-t dsa": "not supported", "-b 512": "2048 to 16384", "-b x": "no number", "-f /etc/x": "unknown option -- f", "-t": "option requires an argument -- t",
		"-t ecdsa -b 100": "256, 384 or 521", "-3 unknown-param test": "unknown option -- 3", "stray": "unknown option -- stray",
		"-a some": "no number of rounds", "-a 0": "no number of rounds", "-a 100 -N secret": "-a with a passphrase",
		`-C "open`: `a " is not closed`, "-t ed25519 -b 512": "has one size", "--help": "unknown option -- help",
	} {
		o, err := parseKeygenOptions(options, "")
		if err == nil {
			_, err = generate(o)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
}

func TestSplitWords(t *testing.T) {
	got, err := splitWords("  a 'b c'd \"e'f\"\t'' ")
	if err != nil || !slices.Equal(got, []string{"a", "b cd", "e'f", ""}) {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestConnectionOptions(t *testing.T) {
	options, err := connectionOptions([]string{"user:debian", "host-public-key: ssh-ed25519 AA:BB", "additional-ssh-options:-C", "-p", "8022"})
	if err != nil || string(options["user"]) != "debian" || string(options["host-public-key"]) != "ssh-ed25519 AA:BB" || string(options["additional-ssh-options"]) != "-C -p 8022" {
		t.Fatal(options, err)
	}
	for item, want := range map[string]string{
		"user": `no key found before "user"; pair should be in "KEY:VAL" format`, ":x": `no key found before ":x"`, "a b:x": "is no key of a Secret", "ssh-privatekey:x": "is what this task makes",
	} {
		if _, err := connectionOptions([]string{item}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", item, err, want)
		}
	}
}

// The names are read without the spaces around them, and refused in the words of the field.
func TestNames(t *testing.T) {
	read := func(params map[string]string) (p *pair, err error) {
		task := Task()
		task.Run = func(_ context.Context, call *declare.Call) error { p, err = newPair(call); return nil }
		env := declare.Environment{
			Log: slog.New(slog.DiscardHandler), Connect: func() (client.WithWatch, error) { return nil, nil },
			LookupEnv: func(name string) (string, bool) {
				for param, value := range params {
					if (declare.Param{Name: param}).Env() == name {
						return value, true
					}
				}
				return "run", name == "TASK_NAMESPACE"
			},
		}
		if runErr := task.Execute(t.Context(), env); runErr != nil {
			t.Fatal(runErr)
		}
		return p, err
	}
	p, err := read(map[string]string{"publicKeySecretName": "test-public ", "publicKeySecretNamespace": " my-test-ns", "privateKeySecretName": "test-private"})
	if err != nil || p.public.String() != "my-test-ns/test-public" || p.private.String() != "run/test-private" {
		t.Errorf("got %+v, %v", p, err)
	}
	for param, want := range map[string]string{
		"publicKeySecretName":       "invalid public-key-secret-name value: a lowercase RFC 1123 subdomain must consist of",
		"privateKeySecretName":      "invalid private-key-secret-name value: a lowercase RFC 1123 subdomain must consist of",
		"publicKeySecretNamespace":  "invalid public-key-secret-namespace value: a lowercase RFC 1123 subdomain must consist of",
		"privateKeySecretNamespace": "invalid private-key-secret-namespace value: a lowercase RFC 1123 subdomain must consist of",
	} {
		if _, err := read(map[string]string{param: "(-invalid ns"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", param, err, want)
		}
	}
	if _, err := read(map[string]string{"publicKeySecretName": "same", "privateKeySecretName": "same"}); err == nil || !strings.Contains(err.Error(), "are both run/same") {
		t.Errorf("got %v", err)
	}
}
