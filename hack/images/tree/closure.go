package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// libraryFolders are where the dynamic loader looks, in its order.
var libraryFolders = []string{"usr/lib/x86_64-linux-gnu", "usr/lib"}

// WithLibraries adds to keep (paths of files below root) every shared library that they link, and so on, with the files that links lead to.
func WithLibraries(root string, keep map[string]bool) error {
	var queue []string
	for name := range keep {
		queue = append(queue, name)
	}
	sort.Strings(queue)
	add := func(name string) {
		if !keep[name] {
			keep[name] = true
			queue = append(queue, name)
		}
	}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		file := filepath.Join(root, name)
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("following %s: %w", name, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(file)
			if err != nil {
				return fmt.Errorf("following %s: %w", name, err)
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join("/", filepath.Dir(name), target)
			}
			add(strings.TrimPrefix(filepath.Clean(target), "/"))
			continue
		}
		if !info.Mode().IsRegular() {
			continue
		}
		for _, lib := range neededLibraries(file) {
			for _, folder := range libraryFolders {
				if _, err := os.Lstat(filepath.Join(root, folder, lib)); err == nil {
					add(filepath.Join(folder, lib))
					break
				}
			}
		}
	}
	return nil
}
