package ssh

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/portforward"
)

type cluster struct{}

func (cluster) Namespace() (string, error) { return "shop", nil }

// run runs the verb with a local program that notes its arguments, and returns these.
func run(t *testing.T, program string, args ...string) ([]string, error) {
	t.Helper()
	folder := t.TempDir()
	told := filepath.Join(folder, "told")
	script := "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done > " + told + "\n"
	if err := os.WriteFile(filepath.Join(folder, program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("USER", "me")
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().String("kubeconfig", "", "")
	root.PersistentFlags().StringArray("as-group", nil, "")
	root.AddCommand(NewCommands(cluster{})...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{program}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(told)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), nil
}

func TestWhatTheLocalProgramIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		args    []string
		// proxy is the end of the line that leads the local program to the guest.
		proxy string
		rest  []string
	}{
		"a shell":            {"ssh", []string{"vm/web"}, " port-forward --stdio=true vm/web/shop 22", []string{"me@vm.web.shop"}},
		"another user":       {"ssh", []string{"admin@vmi/web/infra"}, " port-forward --stdio=true vmi/web/infra 22", []string{"admin@vmi.web.infra"}},
		"no user":            {"ssh", []string{"-l", "", "vm/web"}, " port-forward --stdio=true vm/web/shop 22", []string{"vm.web.shop"}},
		"a command":          {"ssh", []string{"vm/web", "-c", "ls /"}, "", []string{"me@vm.web.shop", "ls /"}},
		"a port and a key":   {"ssh", []string{"-p", "2222", "-i", "key", "vm/web"}, " vm/web/shop 2222", []string{"-i", "key", "me@vm.web.shop"}},
		"options":            {"ssh", []string{"-t", "-o StrictHostKeyChecking=no", "-t", "-v", "vm/web"}, "", []string{"-o StrictHostKeyChecking=no", "-v", "me@vm.web.shop"}},
		"known hosts":        {"ssh", []string{"--known-hosts", "hosts", "vm/web"}, "", []string{"-o", "UserKnownHostsFile=hosts", "me@vm.web.shop"}},
		"the flags of all":   {"ssh", []string{"--kubeconfig", "my config", "--as-group", "a", "--as-group", "b", "vm/web"}, " --as-group=a --as-group=b '--kubeconfig=my config' port-forward --stdio=true vm/web/shop 22", []string{"me@vm.web.shop"}},
		"a file to a guest":  {"scp", []string{"a.txt", "vm/web:b.txt"}, " port-forward --stdio=true vm/web/shop 22", []string{"a.txt", "me@vm.web.shop:b.txt"}},
		"a file from one":    {"scp", []string{"admin@vmi/web/infra:/var/log/a", "."}, "", []string{"admin@vmi.web.infra:/var/log/a", "."}},
		"a VSOCK port":       {"ssh", []string{"--vsock", "-p", "2222", "vm/web"}, " port-forward --stdio=true --vsock --vsock-tls=false vm/web/shop 2222", []string{"me@vm.web.shop"}},
		"a file by VSOCK":    {"scp", []string{"--vsock", "a.txt", "vmi/web:"}, " port-forward --stdio=true --vsock --vsock-tls=false vmi/web/shop 22", []string{"a.txt", "me@vmi.web.shop:"}},
		"a folder as it was": {"scp", []string{"--recursive", "--preserve", "a", "vm/web:"}, "", []string{"-r", "-p", "a", "me@vm.web.shop:"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, c.program, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got[0] != "-o" || !strings.HasPrefix(got[1], "ProxyCommand=") || !strings.HasSuffix(got[1], c.proxy) {
				t.Errorf("the local program goes by %q, want %q", got[:2], c.proxy)
			}
			if !slices.Equal(got[2:], c.rest) {
				t.Errorf("the local program is told %q, want %q", got[2:], c.rest)
			}
		})
	}
}

func TestWhatIsNoTarget(t *testing.T) {
	for line, want := range map[string]string{
		"ssh @vm/web":         "expected username before '@'",
		"ssh me@":             "expected target after '@'",
		"ssh web":             "target must contain type and name separated by '/'",
		"scp a b":             `none of the two provided locations seems to be a remote location: "a" to "b"`,
		"scp vm/a:x vm/b:x":   `copying from a remote location to another remote location is not supported: "vm/a:x" to "vm/b:x"`,
		"scp a.txt pod/web:x": "unsupported resource type 'pod'",
	} {
		words := strings.Fields(line)
		if _, err := run(t, words[0], words[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// What stands in a ProxyCommand reaches this program through the local one, and through a shell.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"/usr/bin/virtctl": "/usr/bin/virtctl", "--a=b": "--a=b", "": "''", "my config": "'my config'",
		"it's": `'it'\''s'`, "100%": "100%%", "$HOME": "'$HOME'", "a;b": "'a;b'",
	} {
		if got := quote([]string{word}); got != want {
			t.Errorf("%q becomes %s, want %s", word, got, want)
		}
	}
	o := options{port: 22}
	got := o.arguments(NewCommands(cluster{})[0].InheritedFlags(), "/opt/my tools/virtctl", portforward.Target{Kind: "vm", Namespace: "a", Name: "b"}, nil)
	if want := "ProxyCommand='/opt/my tools/virtctl' port-forward --stdio=true vm/b/a 22"; got[1] != want {
		t.Errorf("got %s, want %s", got[1], want)
	}
}
