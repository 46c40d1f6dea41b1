// Package deepcopy generates zz_generated.deepcopy.go of our own API packages, those
// marked +kubebuilder:object:generate=true.
package deepcopy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"sigs.k8s.io/controller-tools/pkg/deepcopy"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/loader"

	"github.com/slipway-vm/slipway/hack/generate/output"
)

// Generate writes the deep copies of the packages that match patterns.
func Generate(files *output.Files, patterns ...string) error {
	var generator genall.Generator = &deepcopy.Generator{}
	generators := genall.Generators{&generator}
	runtime, err := generators.ForRoots(patterns...)
	if err != nil {
		return fmt.Errorf("loading %v: %w", patterns, err)
	}
	collected := &collector{}
	runtime.OutputRules = genall.OutputRules{Default: collected}
	if failed := runtime.Run(); failed {
		return errors.New("see the messages above")
	}
	for path, content := range collected.files {
		if err := files.File(path, content.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// collector keeps in memory what a generator writes, by path relative to the module's root.
type collector struct{ files map[string]*buffer }

type buffer struct{ bytes.Buffer }

// Close does nothing: the content is read from memory.
func (*buffer) Close() error { return nil }

// Open returns the buffer of one generated file of pkg.
func (c *collector) Open(pkg *loader.Package, name string) (io.WriteCloser, error) {
	if pkg == nil || len(pkg.CompiledGoFiles) == 0 {
		return nil, fmt.Errorf("%s belongs to no package", name)
	}
	if c.files == nil {
		c.files = map[string]*buffer{}
	}
	opened := &buffer{}
	c.files[filepath.Join(filepath.Dir(pkg.CompiledGoFiles[0]), name)] = opened
	return opened, nil
}
