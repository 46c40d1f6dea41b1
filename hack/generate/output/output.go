// Package output writes generated files, or says which of them differ.
package output

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Files writes generated files; in check mode it only compares.
type Files struct {
	check bool
	stale []string
}

// New returns a writer of files; with check it writes none.
func New(check bool) *Files { return &Files{check: check} }

// File sets the content of one file.
func (f *Files) File(path string, content []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		return nil
	}
	f.stale = append(f.stale, path)
	if f.check {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Folder makes the files of dir that end in suffix exactly those of contents, by name.
func (f *Files) Folder(dir, suffix string, contents map[string][]byte) error {
	present, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, path := range present {
		if _, wanted := contents[filepath.Base(path)]; wanted {
			continue
		}
		f.stale = append(f.stale, path)
		if f.check {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing %s, which is no longer generated: %w", path, err)
		}
	}
	names := make([]string, 0, len(contents))
	for name := range contents {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := f.File(filepath.Join(dir, name), contents[name]); err != nil {
			return err
		}
	}
	return nil
}

// Result returns an error in check mode when a file differs; otherwise it prints what was written.
func (f *Files) Result() error {
	if f.check && len(f.stale) > 0 {
		return fmt.Errorf("not up to date: %s; run go run ./hack/generate and commit the result", strings.Join(f.stale, ", "))
	}
	for _, path := range f.stale {
		fmt.Println("generated", path)
	}
	return nil
}
