package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usage writes how a verb is used. Flags that it has from its parents are left to options.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("  " + cmd.CommandPath() + " VERB [flags]\n")
	} else {
		b.WriteString("  " + cmd.UseLine() + "\n")
	}
	if len(cmd.Aliases) > 0 {
		b.WriteString("\nNames:\n  " + cmd.NameAndAliases() + "\n")
	}
	if cmd.HasExample() {
		b.WriteString("\nExamples:\n" + cmd.Example + "\n")
	}
	b.WriteString(verbs(cmd))
	if cmd.HasParent() && cmd.HasAvailableLocalFlags() {
		b.WriteString("\nFlags:\n" + cmd.LocalFlags().FlagUsages())
	}
	b.WriteString("\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\"" + cmd.CommandPath() + " VERB --help\" tells more of a verb.\n")
	}
	b.WriteString("\"" + cmd.Root().CommandPath() + " options\" lists the flags that every verb takes.\n")
	fmt.Fprint(cmd.OutOrStderr(), b.String())
	return nil
}

// verbs lists those below cmd, a line each.
func verbs(cmd *cobra.Command) string {
	if !cmd.HasAvailableSubCommands() {
		return ""
	}
	var list strings.Builder
	list.WriteString("\nVerbs:\n")
	for _, verb := range cmd.Commands() {
		if verb.IsAvailableCommand() || verb.Name() == "help" {
			fmt.Fprintf(&list, "  %-*s %s\n", verb.NamePadding(), verb.Name(), verb.Short)
		}
	}
	return list.String()
}
