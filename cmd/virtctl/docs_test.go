package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/internal/createvm"
)

// The page for users has every verb, calls none that is not there, and shows what is printed.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/virtctl.md")
	if err != nil {
		t.Fatal(err)
	}
	page, missing, _ := strings.Cut(string(data), "## Not built yet")

	var check func(command *cobra.Command)
	check = func(command *cobra.Command) {
		if path := strings.TrimPrefix(command.CommandPath(), "virtctl "); !command.HasSubCommands() && !strings.Contains(page, "`"+path) {
			t.Errorf("the page does not have %s", path)
		}
		for _, verb := range command.Commands() {
			check(verb)
		}
	}
	root := newRootCommand("virtctl")
	check(root)
	root.InitDefaultCompletionCmd() // which the program has once it runs
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(missing, -1) {
		for verb := range strings.SplitSeq(strings.ReplaceAll(row[1], "`", ""), ", ") {
			if found, _, err := root.Find([]string{verb}); err == nil && found != root {
				t.Errorf("the page says that there is no %s", verb)
			}
		}
	}

	example := regexp.MustCompile("(?s)```\nvirtctl (create vm.*?) \\| kubectl.*?```yaml\n(.*?)```").FindStringSubmatch(page)
	if example == nil {
		t.Fatal("the page has no example of create vm")
	}
	words, err := createvm.Words(example[1])
	if err != nil {
		t.Fatal(err)
	}
	if got, err := run(t, "virtctl", words...); err != nil || got != example[2] {
		t.Errorf("%v; the page's example prints\n%s", err, got)
	}
	for _, line := range regexp.MustCompile(`(?m)^virtctl ([a-z-]+( [a-z]+(-[a-z]+)*)?)`).FindAllStringSubmatch(page, -1) {
		found, rest, err := root.Find(strings.Fields(line[1]))
		group := err == nil && found.HasSubCommands() && (len(rest) == 0 || found.ValidateArgs(rest) != nil)
		if err != nil || found == root || group || len(rest) > 1 {
			t.Errorf("the page calls %s, which is no verb", line[1])
		}
	}
}
