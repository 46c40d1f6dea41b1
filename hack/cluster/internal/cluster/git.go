package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-vm/slipway/hack/cluster/internal/image"
)

// certificates are what git and Tekton's resolvers trust, where this machine has them.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// gitFiles returns this machine's git with its HTTP transport and the libraries of both, for
// the image of Tekton's resolvers, whose git resolver runs it. The key changes with the files.
func gitFiles(ctx context.Context) (files []image.File, key string, err error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, "", fmt.Errorf("finding git for Tekton's git resolver: %w", err)
	}
	out, err := exec.CommandContext(ctx, git, "--exec-path").Output()
	if err != nil {
		return nil, "", fmt.Errorf("asking git for its folder: %w", err)
	}
	transport := filepath.Join(strings.TrimSpace(string(out)), "git-remote-http")
	linked, err := exec.CommandContext(ctx, "ldd", git, transport).Output()
	if err != nil {
		return nil, "", fmt.Errorf("asking for the libraries of %s and %s: %w", git, transport, err)
	}
	sources := append([]string{git, transport}, libraries(string(linked))...)
	if _, err := os.Stat(certificates); err == nil {
		sources = append(sources, certificates)
	}
	sums := sha256.New()
	for _, source := range sources {
		sum, err := fileSum(source)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(sums, "%s %s\n", source, sum)
		files = append(files, image.File{Path: source, Source: source, Mode: 0o755})
	}
	files = append(files,
		image.File{Path: transport + "s", Link: filepath.Base(transport), Mode: 0o777},
		image.File{Path: "/etc/passwd", Data: []byte("nonroot:x:65532:65532:nonroot:/tmp:/none\n"), Mode: 0o644},
	)
	return files, hex.EncodeToString(sums.Sum(nil)), nil
}

// libraries are the files that ldd's answer names, each once.
func libraries(ldd string) []string {
	var found []string
	for line := range strings.Lines(ldd) {
		fields := strings.Fields(line)
		for i, field := range fields {
			if strings.HasPrefix(field, "/") && i+1 < len(fields) && strings.HasPrefix(fields[i+1], "(0x") && !slices.Contains(found, field) {
				found = append(found, field)
			}
		}
	}
	slices.Sort(found)
	return found
}
