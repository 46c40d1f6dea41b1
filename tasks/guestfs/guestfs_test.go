package guestfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tasks/declare"
)

var customize = Tool{Name: "virt-customize", OldCommands: "customizeCommands"}

// calling runs what with a call of these parameters, and returns the results that it wrote.
func calling(t *testing.T, params map[string]string, what func(context.Context, *declare.Call) error) (results map[string]string, out string, err error) {
	t.Helper()
	dir := t.TempDir()
	task := &declare.Task{Name: "test", Params: customize.Params("update"), Results: customize.Results(), Run: what}
	environment := map[string]string{"TASK_RESULTS_DIR": dir, "PARAM_PVC": "disk"}
	for name, value := range params {
		environment[declare.Param{Name: name}.Env()] = value
	}
	var printed bytes.Buffer
	err = task.Execute(t.Context(), declare.Environment{
		LookupEnv: func(name string) (string, bool) { value, ok := environment[name]; return value, ok },
		Out:       &printed, Log: slog.New(slog.DiscardHandler),
	})
	results = map[string]string{}
	for _, result := range task.Results {
		if data, err := os.ReadFile(filepath.Join(dir, result.Name)); err == nil {
			results[result.Name] = string(data)
		}
	}
	return results, printed.String(), err
}

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                           nil,
		"  --smp 2\t--memsize 2048":  {"--smp", "2", "--memsize", "2048"},
		`--run-command 'echo "a b"'`: {"--run-command", `echo "a b"`},
		`a\ b "c \" d" '' e`:         {"a b", `c " d`, "", "e"},
		`--write /etc/x:* $HOME`:     {"--write", "/etc/x:*", "$HOME"},
	} {
		if got, err := split(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, bad := range []string{`'open`, `"open`, `end\`} {
		if _, err := split(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestParametersByTheirNewAndOldNames(t *testing.T) {
	for name, c := range map[string]struct {
		params   map[string]string
		commands string
		args     []string
		err      string
	}{
		"the new names":          {map[string]string{"virtCommands": "update\n", "additionalVirtOptions": "--smp 2"}, "update\n", []string{"--smp", "2"}, ""},
		"the old names":          {map[string]string{"customizeCommands": "update\n", "additionalOptions": "--smp 2"}, "update\n", []string{"--smp", "2"}, ""},
		"verbose":                {map[string]string{"virtCommands": "update", "verbose": "true"}, "update", []string{"--verbose", "-x"}, ""},
		"no commands":            {map[string]string{"virtCommands": " \n"}, "", nil, "virt-commands option or VIRT_COMMANDS env variable is required"},
		"both names":             {map[string]string{"virtCommands": "a", "customizeCommands": "b"}, "", nil, "virtCommands and customizeCommands mean the same and differ"},
		"both names, same value": {map[string]string{"virtCommands": "a", "customizeCommands": "a"}, "a", nil, ""},
		"an open quote":          {map[string]string{"virtCommands": "a", "additionalVirtOptions": "'"}, "", nil, "additionalVirtOptions: "},
		"a verbose that is none": {map[string]string{"virtCommands": "a", "verbose": "yes"}, "", nil, "verbose: "},
	} {
		t.Run(name, func(t *testing.T) {
			var got options
			_, _, err := calling(t, c.params, func(_ context.Context, call *declare.Call) (err error) {
				got, err = read(call)
				return err
			})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || got.commands != c.commands || !slices.Equal(got.args, c.args) {
				t.Errorf("%+v, %v; want commands %q, arguments %q", got, err, c.commands, c.args)
			}
		})
	}
}

func TestSecretsOfCommandsAndOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    options
		want []string
	}{
		"none":                   {options{commands: "update\nroot-password random\npassword a:file:/x\nwrite /etc/motd:Welcome"}, nil},
		"a root password":        {options{commands: "root-password password:hunter22\n"}, []string{"hunter22"}},
		"a quoted one":           {options{commands: "root-password password:'hunter 22'"}, []string{"'hunter 22'", "hunter 22"}},
		"a locked one":           {options{commands: "root-password locked:password:hunter22"}, []string{"hunter22"}},
		"a user's, with a colon": {options{commands: "  password demo:password:a:bcd"}, []string{"a:bcd"}},
		"a subscription's":       {options{commands: "sm-credentials me:password:hunter22"}, []string{"hunter22"}},
		"the key of a disk":      {options{args: []string{"--key", "/dev/sda1:key:hunter22"}}, []string{"hunter22"}},
		"an option":              {options{args: []string{"--root-password", "password:hunter22", "--password", "a:password:other"}}, []string{"hunter22", "other"}},
		"in a command's text":    {options{commands: "run-command echo 'root:hunter22' | chpasswd\nrun-command login --password=\"a b c\" x"}, []string{"hunter22", "a b c"}},
		"a short one":            {options{commands: "root-password password:ab"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.o.secrets(); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestOutputIsPassedOnWithoutSecrets(t *testing.T) {
	o := options{commands: "root-password password:hunter22"}
	results, out, err := calling(t, nil, func(_ context.Context, call *declare.Call) error {
		return customize.report(call, o, func(out io.Writer) error {
			for _, part := range []string{"setting hunt", "er22\nand ", strings.Repeat("x", 2000), "\nhunter22 again"} {
				if _, err := io.WriteString(out, part); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "hunter22") || !strings.HasPrefix(out, "setting ***\nand xxx") || !strings.HasSuffix(out, "\n*** again") {
		t.Errorf("printed %q", out)
	}
	if got := results["stdout"]; len(got) > maxOutput || len(got) < maxOutput-3 || !strings.HasSuffix(got, "x\n*** again") {
		t.Errorf("stdout of %d bytes: %q", len(got), got)
	}
	if results["exitCode"] != "0" {
		t.Errorf("exitCode %q", results["exitCode"])
	}
}

// A program stands in for the tool: what counts is how its end is passed on.
func TestExitCodeIsTheTools(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		code   int
	}{
		"success":      {"echo done", 0},
		"a failure":    {"echo broken >&2; exit 3", 3},
		"a signal":     {"kill -9 $$", codeTool},
		"not runnable": {"", codeTool},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "tool")
			if c.script != "" {
				if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			results, _, err := calling(t, nil, func(ctx context.Context, call *declare.Call) error {
				return customize.report(call, options{}, func(out io.Writer) error { return runTool(ctx, out, program, nil) })
			})
			var exit *declare.Exit
			if errors.As(err, &exit) != (c.code != 0) || exit != nil && exit.Code != c.code {
				t.Errorf("ended with %v, want exit code %d", err, c.code)
			}
			if want := map[bool]string{true: "0"}[c.code == 0]; want != "" && results["exitCode"] != want {
				t.Errorf("exitCode %q", results["exitCode"])
			}
			if c.code == 3 && (results["exitCode"] != "3" || results["stdout"] != "broken") {
				t.Errorf("results %v", results)
			}
		})
	}
}

func TestTailBeginsWithAWholeCharacter(t *testing.T) {
	end := &tail{limit: 4}
	if _, err := io.WriteString(end, "aäöü"); err != nil {
		t.Fatal(err)
	}
	if got := end.text(); got != "öü" {
		t.Errorf("%q", got)
	}
	if _, err := io.WriteString(end, "x"); err != nil {
		t.Fatal(err)
	}
	if got := end.text(); got != "üx" {
		t.Errorf("%q", got)
	}
}

func TestWhatIsNoKVM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "-none", "/dev/null"} {
		if kvmWorks(path) {
			t.Errorf("%s passes for KVM", path)
		}
	}
}
