// Package help writes what virtctl's verbs say of themselves, with the words by which the program
// is called: virtctl, or kubectl virt where it is a plugin.
package help

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// virtctl is how the program is called where its own texts stand.
const virtctl = "virtctl"

// Program returns the words by which the user calls the program whose file is at path: kubectl finds
// its plugin virt as a program named kubectl-virt, and other clients do alike.
func Program(path string) string {
	base := strings.TrimSuffix(filepath.Base(path), ".exe")
	if strings.HasPrefix(base, "kubectl-virt") {
		return "kubectl virt"
	}
	if client, plugin := strings.CutSuffix(base, "-virt"); plugin {
		return client + " virt"
	}
	return virtctl
}

// Set gives root and the verbs below it their form of help, and puts program in the place of virtctl.
func Set(root *cobra.Command, program string) {
	root.Use = strings.ReplaceAll(program, " ", "-")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: program}
	root.SetUsageFunc(usage)
	rename(root, program)
}

func rename(cmd *cobra.Command, program string) {
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = strings.ReplaceAll(*text, virtctl+" ", program+" ")
	}
	for _, verb := range cmd.Commands() {
		rename(verb, program)
	}
}

// NewOptionsCommand returns the verb that lists the flags of every verb, which are no part of the help of each.
func NewOptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "Lists the flags that every verb takes",
		Example: "  virtctl options",
		Args:    cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			cmd.Print("Flags that every verb takes:\n" + cmd.InheritedFlags().FlagUsages())
		},
	}
}
