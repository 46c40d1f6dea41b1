package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Guest returns the path of the disk of a test guest, tiny or debian, and builds it when it is
// not in the cache.
func (c *Cluster) Guest(ctx context.Context, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./tests/guest", "build", name)
	cmd.Dir, cmd.Stderr = c.Root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building the guest %s: %w", name, err)
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return "", fmt.Errorf("building the guest %s: no path was printed", name)
	}
	return lines[len(lines)-1], nil
}
