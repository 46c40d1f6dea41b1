package credentials_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/runtime/launcher/credentials"
)

// list has a credential of each kind.
func list(t *testing.T) []v1.AccessCredential {
	t.Helper()
	var all []v1.AccessCredential
	err := yaml.UnmarshalStrict([]byte(`
- {sshPublicKey: {source: {secret: {secretName: a}}, propagationMethod: {qemuGuestAgent: {users: [root, ops]}}}}
- {sshPublicKey: {source: {secret: {secretName: b}}, propagationMethod: {noCloud: {}}}}
- {userPassword: {source: {secret: {secretName: c}}, propagationMethod: {qemuGuestAgent: {}}}}
- {sshPublicKey: {source: {secret: {secretName: d}}, propagationMethod: {qemuGuestAgent: {users: [ops]}}}}
`), &all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// mount writes the content of a Secret as the kubelet does: a folder behind a link that
// is replaced at once, and a link for each key.
func mount(t *testing.T, dir, version string, content map[string]string) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(filepath.Join(dir, ".."+version), 0o755))
	for key, value := range content {
		check(os.WriteFile(filepath.Join(dir, ".."+version, key), []byte(value), 0o644))
		if _, err := os.Lstat(filepath.Join(dir, key)); err != nil {
			check(os.Symlink("..data/"+key, filepath.Join(dir, key)))
		}
	}
	check(os.Symlink(".."+version, filepath.Join(dir, "..data_tmp")))
	check(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func mounted(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	mount(t, credentials.Dir(root, 0), "1", map[string]string{"one": "ssh-ed25519 AAA a@x\n\n# not a key\nssh-rsa BBB", "two": "ssh-ed25519 CCC\r\n"})
	mount(t, credentials.Dir(root, 1), "1", map[string]string{"key": "ssh-ed25519 DDD"})
	mount(t, credentials.Dir(root, 2), "1", map[string]string{"root": "s3cret\n", "ops": " spaces count "})
	mount(t, credentials.Dir(root, 3), "1", map[string]string{"key": "ssh-ed25519 EEE"})
	return root
}

func TestWhatIsReadOfTheSecrets(t *testing.T) {
	root := mounted(t)
	got, err := credentials.Read(root, list(t))
	want := credentials.Wanted{
		Keys: map[string][]string{
			"root": {"ssh-ed25519 AAA a@x", "ssh-rsa BBB", "ssh-ed25519 CCC"},
			"ops":  {"ssh-ed25519 AAA a@x", "ssh-rsa BBB", "ssh-ed25519 CCC", "ssh-ed25519 EEE"},
		},
		Passwords: map[string]string{"root": "s3cret", "ops": " spaces count "},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	keys, err := credentials.CloudInitKeys(root, list(t))
	if err != nil || !reflect.DeepEqual(keys, []string{"ssh-ed25519 DDD"}) {
		t.Errorf("got %q, %v", keys, err)
	}
	if _, err := credentials.Read(t.TempDir(), list(t)); err == nil || !strings.Contains(err.Error(), "accessCredentials[0]") {
		t.Errorf("a missing Secret: %v", err)
	}
}

// agent keeps what it is told; it lacks the user ops.
type agent map[string]any

func (a agent) AgentCommand(_ context.Context, request string) (string, error) {
	var command struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments"`
	}
	if err := json.Unmarshal([]byte(request), &command); err != nil {
		return "", err
	}
	user, _ := command.Arguments["username"].(string)
	if user == "ops" {
		return `{"error":{"class":"GenericError","desc":"failed to lookup user 'ops' with '` + " spaces count " + `'"}}`, nil
	}
	delete(command.Arguments, "username")
	a[command.Execute+" "+user] = command.Arguments
	return `{"return":{}}`, nil
}

func TestWhatTheAgentIsTold(t *testing.T) {
	wanted, err := credentials.Read(mounted(t), list(t))
	if err != nil {
		t.Fatal(err)
	}
	told := agent{}
	err = credentials.Give(t.Context(), told, wanted)
	if err == nil || !strings.Contains(err.Error(), "…") || !strings.Contains(err.Error(), "setting the password of user ops") || strings.Contains(err.Error(), "spaces") {
		t.Errorf("got %v", err)
	}
	want := agent{
		"guest-ssh-add-authorized-keys root": map[string]any{"keys": []any{"ssh-ed25519 AAA a@x", "ssh-rsa BBB", "ssh-ed25519 CCC"}, "reset": true},
		"guest-set-user-password root":       map[string]any{"password": "czNjcmV0", "crypted": false},
	}
	if !reflect.DeepEqual(told, want) {
		t.Errorf("told %v", told)
	}
}

func TestAChangedSecretIsNoticed(t *testing.T) {
	root := mounted(t)
	changed := make(chan struct{}, 10)
	if err := credentials.Watch(t.Context(), root, list(t), func() { changed <- struct{}{} }, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	mount(t, credentials.Dir(root, 2), "2", map[string]string{"root": "other"})
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("the change is not noticed")
	}
	got, err := credentials.Read(root, list(t))
	if err != nil || !reflect.DeepEqual(got.Passwords, map[string]string{"root": "other"}) {
		t.Errorf("got %+v, %v", got.Passwords, err)
	}
}
