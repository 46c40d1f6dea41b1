package debian

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slipway-vm/slipway/hack/images/cache"
)

// Bootstrap installs all packages of the lock, and nothing else, into the new folder target. Maintainer scripts run in it; include
// names what to install besides the essential packages. A kernel among them gets no initramfs.
func Bootstrap(ctx context.Context, dir cache.Dir, lock *Lock, include []string, target string) error {
	needs := map[string]string{
		"/usr/bin/mmdebstrap":                            "mmdebstrap",
		"/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
		"/usr/bin/dpkg-deb":                              "dpkg",
	}
	if err := Require(ctx, needs); err != nil {
		return err
	}
	files, err := Fetch(ctx, dir, lock)
	if err != nil {
		return err
	}
	repo, remove, err := dir.TempDir("repo")
	if err != nil {
		return err
	}
	defer remove()
	if err := writeRepository(ctx, repo, lock, files); err != nil {
		return err
	}
	env := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(lock.Resolved.Unix(), 10), "TMPDIR=" + dir.Path("work"), "DEBIAN_FRONTEND=noninteractive", "INITRD=No"}
	_, err = run(ctx, env, "mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--architectures=amd64",
		`--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Languages "none"`, "--dpkgopt=force-unsafe-io",
		"--skip=check/qemu", "--include="+strings.Join(plainNames(include), ","), lock.Suite, target,
		"deb [trusted=yes] copy:"+repo+" ./")
	if err != nil {
		return fmt.Errorf("installing %d packages of %s: %w", len(lock.Packages), lock.Suite, err)
	}
	return nil
}

// plainNames drops what Resolve alone understands (name/suite).
func plainNames(include []string) []string {
	names := make([]string, 0, len(include))
	for _, n := range include {
		name, _, _ := strings.Cut(n, "/")
		names = append(names, name)
	}
	return names
}

// Extract unpacks packages without running their scripts.
func Extract(ctx context.Context, files map[string]string, names []string, target string) error {
	for _, name := range names {
		file, ok := files[name]
		if !ok {
			return fmt.Errorf("package %s is not in the lock; make the lock anew with --update-locks", name)
		}
		if _, err := run(ctx, nil, "dpkg-deb", "--extract", file, target); err != nil {
			return fmt.Errorf("unpacking %s: %w", name, err)
		}
	}
	return nil
}

// writeRepository makes a flat package archive of exactly the locked packages.
func writeRepository(ctx context.Context, repo string, lock *Lock, files map[string]string) error {
	var index strings.Builder
	for _, p := range lock.Packages {
		file := files[p.Name()]
		control, err := run(ctx, nil, "dpkg-deb", "--field", file)
		if err != nil {
			return fmt.Errorf("reading package %s: %w", p.Name(), err)
		}
		name := filepath.Base(file)
		if err := os.Link(file, filepath.Join(repo, name)); err != nil {
			return fmt.Errorf("listing package %s: %w", p.Name(), err)
		}
		fmt.Fprintf(&index, "%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n\n", strings.TrimSpace(control), name, p.Size, p.SHA256)
	}
	if err := os.WriteFile(filepath.Join(repo, "Packages"), []byte(index.String()), 0o644); err != nil {
		return fmt.Errorf("writing the package index: %w", err)
	}
	return nil
}
