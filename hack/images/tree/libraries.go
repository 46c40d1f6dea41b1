package tree

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"
)

// MissingLibraries returns "file needs library" for each program or library of the tree that needs a shared library which the tree lacks.
func (t Tree) MissingLibraries() ([]string, error) {
	entries, err := t.entries()
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, e := range entries {
		have[path.Base(e.Path)] = true
	}
	var missing []string
	for _, e := range entries {
		if !e.Mode.IsRegular() || e.File == "" {
			continue
		}
		for _, lib := range neededLibraries(e.File) {
			if !have[lib] {
				missing = append(missing, fmt.Sprintf("%s needs %s", e.Path, lib))
			}
		}
	}
	sort.Strings(missing)
	return missing, nil
}

// neededLibraries is empty for anything but a dynamic ELF file.
func neededLibraries(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	if magic, err := bufio.NewReader(f).Peek(4); err != nil || !bytes.Equal(magic, []byte(elf.ELFMAG)) {
		return nil
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return nil
	}
	libs, err := e.ImportedLibraries()
	if err != nil {
		return nil
	}
	return libs
}

// SkipNames makes a Skip function: exact paths or folders in set, and shell patterns (path.Match) of which one that ends in /** leaves
// out what is in a folder but keeps the folder.
func SkipNames(set map[string]bool, patterns []string) func(string, bool) bool {
	return func(name string, dir bool) bool {
		if set[name] && !dir {
			return true
		}
		for _, p := range patterns {
			if inside, ok := strings.CutSuffix(p, "/**"); ok {
				if strings.HasPrefix(name, inside+"/") {
					return true
				}
				continue
			}
			if ok, err := path.Match(p, name); ok && err == nil {
				return true
			}
		}
		return false
	}
}
