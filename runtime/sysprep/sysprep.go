// Package sysprep makes the disc of answers that Windows reads when it is set up: an
// ISO 9660 image with the files of a ConfigMap or a Secret, among them an answer file.
package sysprep

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/iso"
)

// Label is the disc's volume label, which Windows does not ask for.
const Label = "unattendCD"

// Answer files, one of which a disc must have. Setup looks for the first on the discs of
// a machine that it installs, a generalized system for the second. Windows takes upper and
// lower case for the same.
const (
	Autounattend = "autounattend.xml"
	Unattend     = "unattend.xml"
)

// Of says in words what a sysprep volume is made of.
func Of(source *v1.SysprepSource) string {
	switch {
	case source.ConfigMap != nil:
		return "ConfigMap " + source.ConfigMap.Name
	case source.Secret != nil:
		return "Secret " + source.Secret.Name
	}
	return "nothing"
}

// Files reads the keys of a ConfigMap or Secret that is mounted at dir. Without an answer
// file it is an error that names what there is.
func Files(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the answer files: %w", err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "..") {
			continue // the kubelet's own
		}
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("reading the answer files: %w", err)
		}
	}
	return files, check(slices.Sorted(maps.Keys(files)))
}

// check makes sure that names have an answer file, and that Windows can tell them apart.
func check(names []string) error {
	found := false
	seen := map[string]string{}
	for _, name := range names {
		lower := strings.ToLower(name)
		if other, twice := seen[lower]; twice {
			return fmt.Errorf("keys %s and %s differ in case only, which Windows does not see; remove one of them", other, name)
		}
		seen[lower] = name
		found = found || lower == Autounattend || lower == Unattend
	}
	if found {
		return nil
	}
	has := "it is empty"
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("no key %s or %s (in any case); %s: add the answer file", Autounattend, Unattend, has)
}

// WriteISO makes the disc at path, whose folder also takes a temporary copy.
func WriteISO(path string, files map[string][]byte) error {
	return iso.Write(path, Label, iso.Private(files))
}
