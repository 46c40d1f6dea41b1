package help

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestProgram(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin/virtctl": "virtctl", "virtctl-linux-amd64": "virtctl", "other": "virtctl",
		"/home/me/.krew/bin/kubectl-virt": "kubectl virt", "kubectl-virt.exe": "kubectl virt", "kubectl-virt-1": "kubectl virt", "oc-virt": "oc virt",
	} {
		if got := Program(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// tree has a verb with one below it, as they are written in the program.
func tree() *cobra.Command {
	root := &cobra.Command{Short: "Does things"}
	root.PersistentFlags().String("context", "", "where")
	group := &cobra.Command{Use: "make", Short: "Makes things", Aliases: []string{"mk"}, Run: func(*cobra.Command, []string) {}}
	leaf := &cobra.Command{Use: "cake NAME", Short: "Makes a cake", Long: "virtctl make cake makes a cake.", Example: "  virtctl make cake big", Run: func(*cobra.Command, []string) {}}
	leaf.Flags().String("size", "", "how big")
	hidden := &cobra.Command{Use: "pie", Hidden: true, Run: func(*cobra.Command, []string) {}}
	group.AddCommand(leaf, hidden)
	root.AddCommand(group, NewOptionsCommand())
	return root
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--help": `Does things

Usage:
  oc virt VERB [flags]

Verbs:
  completion  Generate the autocompletion script for the specified shell
  help        Help about any command
  make        Makes things
  options     Lists the flags that every verb takes

"oc virt VERB --help" tells more of a verb.
"oc virt options" lists the flags that every verb takes.
`,
		"make --help": `Makes things

Usage:
  oc virt make VERB [flags]

Names:
  make, mk

Verbs:
  cake        Makes a cake

Flags:
  -h, --help   help for make

"oc virt make VERB --help" tells more of a verb.
"oc virt options" lists the flags that every verb takes.
`,
		"make cake --help": `oc virt make cake makes a cake.

Usage:
  oc virt make cake NAME [flags]

Examples:
  oc virt make cake big

Flags:
  -h, --help          help for cake
      --size string   how big

"oc virt options" lists the flags that every verb takes.
`,
		"options": `Flags that every verb takes:
      --context string   where
`,
	} {
		root := tree()
		Set(root, "oc virt")
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", args, err, out.String(), want)
		}
	}
}
