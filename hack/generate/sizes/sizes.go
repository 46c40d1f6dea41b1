// Package sizes writes the common instance types and preferences from their declaration,
// and the page of the docs that lists them.
package sizes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/yaml"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/slipway-vm/slipway/catalog/declare"
	"github.com/slipway-vm/slipway/hack/generate/output"
)

// Generate writes the YAML into folders below root, and the page.
func Generate(files *output.Files, root, page string) error {
	instancetypes, err := declare.Instancetypes()
	if err != nil {
		return err
	}
	preferences, err := declare.Preferences()
	if err != nil {
		return err
	}
	if err := files.Folder(filepath.Join(root, "instancetypes"), ".yaml", instancetypes); err != nil {
		return err
	}
	if err := files.Folder(filepath.Join(root, "preferences"), ".yaml", preferences); err != nil {
		return err
	}
	content, err := pageOf(instancetypes, preferences)
	if err != nil {
		return err
	}
	return files.File(page, content)
}

func pageOf(instancetypes, preferences map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(instancetypes)) {
		series, err := decode[v1beta1.VirtualMachineClusterInstancetype](instancetypes[name])
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		writeSeries(&b, series)
	}
	b.WriteString(middle)
	for _, name := range slices.Sorted(maps.Keys(preferences)) {
		family, err := decode[v1beta1.VirtualMachineClusterPreference](preferences[name])
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		for i := range family {
			writePreference(&b, &family[i])
		}
	}
	return b.Bytes(), nil
}

// decode reads a YAML stream of objects of one kind.
func decode[T any](content []byte) ([]T, error) {
	var all []T
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var one *T
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if one != nil { // a comment before the first line of dashes
			all = append(all, *one)
		}
	}
}
