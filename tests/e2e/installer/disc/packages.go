package disc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/debian"
)

// The Debian release whose installer is used.
const (
	suite  = "trixie"
	number = "13"
)

// media hold the installer's kernel and initrd, and the boot loader for discs.
var media = []string{"debian-installer-" + number + "-netboot-amd64", "isolinux"}

// unpacked returns the folder with the content of today's packages: the media, the kernel that they boot, and what makes file systems.
func unpacked(ctx context.Context) (string, error) {
	root, err := extracted(ctx, media)
	if err != nil {
		return "", err
	}
	kernel, err := kernelOf(ctx, root)
	if err != nil {
		return "", err
	}
	return extracted(ctx, append(slices.Clone(media), "linux-image-"+kernel, "e2fsprogs", "libext2fs2t64", "libcom-err2"))
}

// extracted unpacks packages into a folder named by their hashes.
func extracted(ctx context.Context, names []string) (string, error) {
	dir, err := cache.Default()
	if err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp("", "apt-")
	if err != nil {
		return "", fmt.Errorf("making a folder for apt: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	lock, err := debian.Resolve(ctx, scratch, debian.Spec{Suite: suite, Include: names, Keep: quoted(names)})
	if err != nil {
		return "", fmt.Errorf("looking for the installer's packages: %w", err)
	}
	debs, err := debian.Fetch(ctx, dir, lock)
	if err != nil {
		return "", err
	}
	root := dir.Path("installer", identity(lock))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(root), ".unpack-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the installer's packages: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := debian.Extract(ctx, debs, names, work); err != nil {
		return "", err
	}
	if err := os.Rename(work, root); err != nil {
		return "", fmt.Errorf("keeping the installer's packages: %w", err)
	}
	return root, nil
}

// identity is a name for the packages of a lock.
func identity(lock *debian.Lock) string {
	sum := sha256.New()
	for _, p := range lock.Packages {
		fmt.Fprintln(sum, p.SHA256)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// quoted are expressions that match just the names.
func quoted(names []string) []string {
	patterns := make([]string, 0, len(names))
	for _, name := range names {
		patterns = append(patterns, regexp.QuoteMeta(name))
	}
	return patterns
}
