package recipe

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/slipway-vm/slipway/hack/images/kmod"
)

// moduleSet finds kernel modules by name below a lib/modules folder.
type moduleSet struct {
	files map[string]string
}

func findModules(dir string) (moduleSet, error) {
	set := moduleSet{files: map[string]string{}}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := strings.TrimSuffix(d.Name(), ".xz")
		if name, ok := strings.CutSuffix(base, ".ko"); ok {
			set.files[moduleName(name)] = file
		}
		return nil
	})
	if err != nil {
		return set, fmt.Errorf("listing kernel modules: %w", err)
	}
	return set, nil
}

// moduleName is the one spelling of a module's name; the kernel takes - and _ for the same.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// module is one kernel module ready to be loaded.
type module struct {
	name string
	// data is without the signature, which a kernel asks for under Secure Boot.
	data, signature []byte
}

// load returns the named modules with all that they need, each after what it needs. Names that the kernel has built in are left out.
func (s moduleSet) load(names []string) ([]module, error) {
	var ordered []module
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		name = moduleName(name)
		file, ok := s.files[name]
		if !ok || done[name] {
			return nil
		}
		done[name] = true
		data, err := readModule(file)
		if err != nil {
			return err
		}
		needs, err := moduleNeeds(data)
		if err != nil {
			return fmt.Errorf("reading module %s: %w", file, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		unsigned, signature := kmod.Split(data)
		ordered = append(ordered, module{name, unsigned, signature})
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

func readModule(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a module: %w", err)
	}
	if !strings.HasSuffix(file, ".xz") {
		return data, nil
	}
	r, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", file, err)
	}
	if data, err = io.ReadAll(r); err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", file, err)
	}
	return data, nil
}

// moduleNeeds reads the names that a module says it depends on, also its soft dependencies that must come before.
func moduleNeeds(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading ELF: %w", err)
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("reading .modinfo: %w", err)
	}
	var needs []string
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			needs = append(needs, strings.Split(list, ",")...)
		}
		if list, ok := strings.CutPrefix(string(field), "softdep=pre: "); ok {
			needs = append(needs, strings.Fields(list)...)
		}
	}
	return needs, nil
}
