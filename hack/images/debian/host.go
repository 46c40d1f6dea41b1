package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Require installs on this machine those Debian packages whose file is missing. needs maps a file that a package brings to the package's name.
func Require(ctx context.Context, needs map[string]string) error {
	var missing []string
	for file, name := range needs {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages %s are missing: install them, or run this as root", strings.Join(missing, " "))
	}
	fmt.Fprintf(os.Stderr, "installing Debian packages: %s\n", strings.Join(missing, " "))
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	install := append([]string{"install", "-q", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, missing...)
	if _, err := run(ctx, env, "apt-get", install...); err == nil {
		return nil
	}
	if _, err := run(ctx, env, "apt-get", "update", "-q"); err != nil {
		return fmt.Errorf("updating this machine's package lists: %w", err)
	}
	if _, err := run(ctx, env, "apt-get", install...); err != nil {
		return fmt.Errorf("installing %s on this machine: %w", strings.Join(missing, " "), err)
	}
	return nil
}

// run runs a program and returns its standard output; the error holds the end of both outputs.
func run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, tail(out.String()+errOut.String(), 4000))
	}
	return out.String(), nil
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
