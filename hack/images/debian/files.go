package debian

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// FilesOf returns the paths (no leading slash, on a merged /usr) that in the bootstrapped folder root belong to the named packages
// and to no other one. A named package that is not installed is an error, so that lists of packages stay true.
func FilesOf(root string, names []string) (map[string]bool, error) {
	mine, others, err := splitFiles(root, names)
	if err != nil {
		return nil, err
	}
	for p := range others {
		delete(mine, p)
	}
	return mine, nil
}

// FilesNotOf returns the paths of the named packages, and the paths that belong only to other ones.
func FilesNotOf(root string, names []string) (named, rest map[string]bool, err error) {
	mine, others, err := splitFiles(root, names)
	if err != nil {
		return nil, nil, err
	}
	for p := range mine {
		delete(others, p)
	}
	return mine, others, nil
}

// splitFiles returns the files of the named packages and those of all other ones; some may be in both.
func splitFiles(root string, names []string) (mine, others map[string]bool, err error) {
	lists, err := filepath.Glob(filepath.Join(root, "var/lib/dpkg/info/*.list"))
	if err != nil {
		return nil, nil, fmt.Errorf("listing packages: %w", err)
	}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	mine, others = map[string]bool{}, map[string]bool{}
	found := map[string]bool{}
	for _, list := range lists {
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ":")
		set := others
		if wanted[name] {
			set, found[name] = mine, true
		}
		if err := readList(list, set); err != nil {
			return nil, nil, err
		}
	}
	var absent []string
	for _, n := range names {
		if !found[n] {
			absent = append(absent, n)
		}
	}
	if len(absent) > 0 {
		return nil, nil, fmt.Errorf("packages are named that are not installed, take them off the list: %s", strings.Join(absent, " "))
	}
	return mine, others, nil
}

func readList(list string, set map[string]bool) error {
	f, err := os.Open(list)
	if err != nil {
		return fmt.Errorf("reading a package's files: %w", err)
	}
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		set[mergedUsr(strings.TrimPrefix(scanner.Text(), "/"))] = true
	}
	if err := errors.Join(scanner.Err(), f.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", list, err)
	}
	return nil
}

// mergedUsr maps a path of the old layout to its place below usr.
func mergedUsr(p string) string {
	first, _, _ := strings.Cut(p, "/")
	switch first {
	case "bin", "sbin", "lib", "lib64":
		if p != first {
			return "usr/" + p
		}
	}
	return p
}
