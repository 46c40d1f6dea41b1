package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// run runs the program with a kubeconfig that is not there.
func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent")
	root := newRootCommand(program)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// Each verb says what it does and has an example to copy, by the name under which the program runs.
func TestVerbsExplainThemselves(t *testing.T) {
	for _, program := range []string{"virtctl", "kubectl virt"} {
		var check func(command *cobra.Command)
		check = func(command *cobra.Command) {
			if command.Short == "" {
				t.Errorf("%s says nothing of itself", command.CommandPath())
			}
			if !command.HasSubCommands() && !strings.Contains(command.Example, "  "+command.CommandPath()) {
				t.Errorf("%s has no example", command.CommandPath())
			}
			for _, text := range []string{command.Short, command.Long, command.Example} {
				if program != "virtctl" && strings.Contains(text, "virtctl ") {
					t.Errorf("%s speaks of virtctl: %s", command.CommandPath(), text)
				}
			}
			for _, verb := range command.Commands() {
				check(verb)
			}
		}
		check(newRootCommand(program))
	}
}

func TestRoot(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "  virtctl VERB [flags]",
		"options":                  "--kubeconfig string",
		"completion bash":          "# bash completion V2 for virtctl ",
		"completion fish":          "# fish completion for virtctl ",
		"__complete create in":     "instancetype\tPrints the manifest of an instance type",
		"__complete pa":            "pause\tPauses a VM",
		"__complete pause v":       "vmi\n:4\n",
		"version --client":         "Client Version: version.Info{GitVersion:\"devel\"",
		"create":                   `"virtctl create VERB --help" tells more of a verb.`,
		"template":                 `"virtctl template VERB --help" tells more of a verb.`,
		"create vm -n shop":        "  namespace: shop\n",
		"create preference -n a":   "kind: VirtualMachinePreference\n",
		"create vm --user someone": "user: someone", // not the user of the kubeconfig
	} {
		if got, err := run(t, "virtctl", strings.Fields(args)...); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s\nwant %s", args, err, got, want)
		}
	}
	for args, want := range map[string]string{
		"migrate web":        `unknown command "migrate" for "virtctl"`,
		"start web":          "set KUBECONFIG or --kubeconfig",
		"pause pod web":      "unsupported resource type 'pod'; write vm or vmi",
		"create pod":         `unknown command "pod" for "virtctl create"`,
		"template delete":    `unknown command "delete" for "virtctl template"`,
		"template process a": "set KUBECONFIG or --kubeconfig",
	} {
		if got, err := run(t, "virtctl", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s\nwant %s", args, err, got, want)
		}
	}
	if got, err := run(t, "kubectl virt", "completion", "bash"); err != nil || !strings.Contains(got, "# bash completion V2 for kubectl-virt ") {
		t.Errorf("%v\n%s", err, got)
	}
}
