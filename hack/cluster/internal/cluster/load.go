package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/hack/cluster/internal/image"
	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// Load imports OCI archives into every node; an image that is there with the
// same digest is left alone.
func (p *Program) Load(ctx context.Context, archives []string) error {
	for _, n := range p.Cluster.Nodes {
		if err := p.loadNode(ctx, n, archives); err != nil {
			return err
		}
	}
	return nil
}

func (p *Program) loadNode(ctx context.Context, n layout.Node, archives []string) error {
	have, err := nodeImages(ctx, n)
	if err != nil {
		return err
	}
	for _, file := range archives {
		contents, err := image.Contents(file)
		if err != nil {
			return err
		}
		var news []string
		for _, c := range contents {
			if have[c.Ref] != c.Digest {
				news = append(news, c.Ref)
			}
		}
		if len(news) == 0 {
			continue
		}
		began := time.Now()
		if err := importArchive(ctx, n, file); err != nil {
			return fmt.Errorf("loading %s into node %s: %w", file, n.Name, err)
		}
		p.say("loaded %s in %.1fs", strings.Join(news, " "), time.Since(began).Seconds())
	}
	return nil
}

// ctr returns a command of containerd's client for the node's images.
func ctr(ctx context.Context, n layout.Node, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ctr", append([]string{"--address", n.ContainerdSocket(), "--namespace", "k8s.io"}, args...)...)
}

// nodeImages returns the digests of the node's images by name.
func nodeImages(ctx context.Context, n layout.Node) (map[string]string, error) {
	out, err := ctr(ctx, n, "images", "ls").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the images of node %s: %w; is the cluster up?", n.Name, err)
	}
	return parseImages(string(out)), nil
}

// parseImages reads the table that ctr prints: name, type, digest, and more.
func parseImages(table string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) >= 3 && strings.HasPrefix(fields[2], "sha256:") {
			found[fields[0]] = fields[2]
		}
	}
	return found
}

// importArchive streams an archive into containerd.
func importArchive(ctx context.Context, n layout.Node, file string) error {
	read, write := io.Pipe()
	cmd := ctr(ctx, n, "images", "import", "-")
	cmd.Stdin = read
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	copied := make(chan error, 1)
	go func() {
		err := image.Stream(write, file)
		_ = write.CloseWithError(err)
		copied <- err
	}()
	err := cmd.Run()
	_ = read.CloseWithError(errors.New("the import has ended"))
	copyErr := <-copied
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	return copyErr
}
