package ssh

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-vm/slipway/cmd/virtctl/portforward"
)

// run runs the local program with the user's terminal, and returns its end.
func (o *options) run(cmd *cobra.Command, program string, t portforward.Target, words []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	local := exec.CommandContext(cmd.Context(), program, o.arguments(cmd.InheritedFlags(), self, t, words)...)
	local.Stdin, local.Stdout, local.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := local.Run(); err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	return nil
}

// arguments are those of the local program: self is this one, and inherited are the flags by which it
// was told of the cluster.
func (o *options) arguments(inherited *pflag.FlagSet, self string, t portforward.Target, words []string) []string {
	proxy := []string{self}
	inherited.VisitAll(func(flag *pflag.Flag) { proxy = append(proxy, given(flag)...) })
	proxy = append(proxy, "port-forward", "--stdio=true")
	if o.vsock { // SSH is encrypted already
		proxy = append(proxy, "--vsock", "--vsock-tls=false")
	}
	proxy = append(proxy, t.Kind+"/"+t.Name+"/"+t.Namespace, strconv.Itoa(o.port))
	arguments := []string{"-o", "ProxyCommand=" + quote(proxy)}
	if o.knownHosts != "" {
		arguments = append(arguments, "-o", "UserKnownHostsFile="+o.knownHosts)
	}
	arguments = append(arguments, o.local...)
	if o.identity != "" {
		arguments = append(arguments, "-i", o.identity)
	}
	return append(arguments, words...)
}

// given returns a flag as the user gave it; nothing where it was not given.
func given(flag *pflag.Flag) []string {
	if !flag.Changed {
		return nil
	}
	values := []string{flag.Value.String()}
	if several, ok := flag.Value.(pflag.SliceValue); ok {
		values = several.GetSlice()
	}
	for i, value := range values {
		values[i] = "--" + flag.Name + "=" + value
	}
	return values
}

// quote makes a line of words for the shell that runs a ProxyCommand. The local program replaces
// what follows a % in it first, but for another %.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if word == "" || strings.ContainsFunc(word, special) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted[i] = strings.ReplaceAll(word, "%", "%%")
	}
	return strings.Join(quoted, " ")
}

// special says whether a shell may make more of r than itself.
func special(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_=./:@,+%", r)
}
