package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/oci"
)

// keptRoots is how many unpacked versions of one image stay in the cache.
const keptRoots = 2

// runUnpack builds an image and prints the folder with its root file system, which is shared by all users of the cache: nobody may
// change it.
func runUnpack(ctx context.Context, w io.Writer, name string) error {
	if os.Geteuid() != 0 {
		return errors.New("files of an image have owners, which only root may set: run this as root")
	}
	if err := runBuild(ctx, []string{name}, buildOptions{}); err != nil {
		return err
	}
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	images, err := readIndex(checkout)
	if err != nil {
		return err
	}
	dir, err := cache.Default()
	if err != nil {
		return err
	}
	release, err := dir.Lock("image-" + name)
	if err != nil {
		return err
	}
	defer release()
	root, err := unpacked(ctx, dir, name, images[name].Archive)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, root); err != nil {
		return fmt.Errorf("printing the folder: %w", err)
	}
	return nil
}

// unpacked returns the folder of an archive's content, which appears there whole or not at all.
func unpacked(ctx context.Context, dir cache.Dir, name, archive string) (string, error) {
	root := dir.Path("roots", strings.TrimSuffix(filepath.Base(archive), ".tar"))
	if cache.Exists(root) {
		return root, cache.Touch(root)
	}
	work, remove, err := dir.TempDir("root")
	if err != nil {
		return "", err
	}
	defer remove()
	fresh := filepath.Join(work, "root")
	if err := errors.Join(os.Mkdir(fresh, 0o755), os.MkdirAll(dir.Path("roots"), 0o755)); err != nil {
		return "", fmt.Errorf("making the folder of the root file system: %w", err)
	}
	if err := oci.Unpack(ctx, archive, fresh); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, root); err != nil {
		return "", fmt.Errorf("storing the root file system: %w", err)
	}
	if err := cache.Touch(root); err != nil {
		return "", err
	}
	return root, dir.Prune("roots/"+name+"-*", keptRoots)
}
