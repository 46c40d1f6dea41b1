package guestfs

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// options are the parameters that say what the tool does.
type options struct {
	// args are the tool's options, each one word as the tool shall see it.
	args []string
	// commands are its commands, one a line.
	commands string
	// verbose says that all is printed.
	verbose bool
}

// read reads the parameters.
func read(call *declare.Call) (options, error) {
	commands := call.String(paramCommands)
	if strings.TrimSpace(commands) == "" {
		return options{}, errors.New("virt-commands option or VIRT_COMMANDS env variable is required")
	}
	o := options{commands: commands}
	verbose, err := call.Bool("verbose")
	if err != nil {
		return options{}, err
	}
	if o.verbose = verbose; verbose {
		o.args = append(o.args, "--verbose", "-x")
	}
	more, err := split(call.String(paramOptions))
	if err != nil {
		return options{}, fmt.Errorf("%s: %w", paramOptions, err)
	}
	o.args = append(o.args, more...)
	return o, nil
}

// secretWords are the options and commands whose argument ends with a password; those
// with a user's name before it say so.
var secretWords = map[string]bool{
	"root-password": false, "password": true, "user-password": true, "sm-credentials": true,
	"vnc-password": false, "key": true,
}

// minSecret is the shortest password that is kept out of the log: shorter ones are found in any text.
const minSecret = 3

// secrets are the passwords that stand in commands and options, the longest first.
func (o options) secrets() []string {
	var found []string
	for line := range strings.Lines(o.commands) {
		word, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
		found = append(found, secretOf(word, strings.TrimSpace(argument))...)
		found = append(found, secretsInText(argument)...)
	}
	for i, word := range o.args {
		found = append(found, secretsInText(word)...)
		if name, argument, ok := strings.Cut(word, "="); ok {
			found = append(found, secretOf(name, argument)...)
		} else if i+1 < len(o.args) {
			found = append(found, secretOf(word, o.args[i+1])...)
		}
	}
	found = slices.DeleteFunc(found, func(s string) bool { return len(s) < minSecret })
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(found)
}

// secretOf returns the password in the argument of a command or option, such as
// root-password password:x, password user:password:x or key ID:key:x. What a shell would
// take away at its ends is taken away in a second form of it.
func secretOf(word, argument string) []string {
	named, ok := secretWords[strings.TrimLeft(word, "-")]
	if !ok {
		return nil
	}
	if named {
		_, argument, _ = strings.Cut(argument, ":")
	}
	argument = strings.TrimPrefix(argument, "locked:")
	kind, secret, ok := strings.Cut(argument, ":")
	if !ok || kind != "password" && kind != "key" {
		return nil
	}
	secrets := []string{secret}
	if bare := strings.Trim(secret, `"'`); bare != secret {
		secrets = append(secrets, bare)
	}
	return secrets
}

// Passwords in the text of commands such as run-command and write, which the tool prints:
// password=x and the like, and what is fed to chpasswd.
var (
	assigned = regexp.MustCompile(`(?i)(?:password|passwd|passphrase|secret|token)["']?\s*[=:]\s*("[^"]*"|'[^']*'|[^\s"']+)`)
	chpasswd = regexp.MustCompile(`[\w.-]+:([^\s"'|]+)["']?\s*\|\s*(?:sudo\s+)?chpasswd`)
)

func secretsInText(text string) []string {
	var found []string
	for _, pattern := range []*regexp.Regexp{assigned, chpasswd} {
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			found = append(found, strings.Trim(match[1], `"'`))
		}
	}
	return found
}

// split makes words of a line as a shell does, with quotes and backslashes and nothing else.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	started, escaped := false, false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, started = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case strings.ContainsRune(" \t\r\n", r):
			end()
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("%q has an open quote or a lone backslash", line)
	}
	end()
	return words, nil
}
