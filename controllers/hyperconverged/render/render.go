// Package render turns the YAML of components into objects. It is pure: no client, no
// clock, no environment.
package render

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/lru"
)

// Values is what the templates may name.
type Values struct {
	Namespace     string // where the components live
	SlipwayImage  string
	LauncherImage string
	GuestfsImage  string
	KubeletRoot   string // the kubelet's root folder on every node
	Version       string // of this operator
	PullPolicy    string
	Verbosity     int32 // of the component's log
}

// Folder renders the files of one folder of files, in the order of their names, as templates over values.
func Folder(files fs.FS, folder string, values Values) ([]*unstructured.Unstructured, error) {
	return each(files, folder, func(name string, content []byte) ([]byte, error) {
		parsed, err := template.New(name).Option("missingkey=error").Parse(string(content))
		if err != nil {
			return nil, fmt.Errorf("parsing its template: %w", err)
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, values); err != nil {
			return nil, fmt.Errorf("filling its template: %w", err)
		}
		return out.Bytes(), nil
	})
}

// Bundle reads the plain YAML files of files, all folders, with images replaced by name.
func Bundle(files fs.FS, images map[string]string) ([]*unstructured.Unstructured, error) {
	pairs := make([]string, 0, 2*len(images))
	for from, to := range images {
		pairs = append(pairs, from, to)
	}
	replacer := strings.NewReplacer(pairs...)
	return each(files, ".", func(_ string, content []byte) ([]byte, error) {
		return []byte(replacer.Replace(string(content))), nil
	})
}

type filler func(name string, content []byte) ([]byte, error)

func each(files fs.FS, root string, fill filler) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(files, root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if content, err = fill(path, content); err != nil {
			return fmt.Errorf("rendering %s: %w", path, err)
		}
		decoded, err := Decode(content)
		if err != nil {
			return fmt.Errorf("decoding %s: %w", path, err)
		}
		objects = append(objects, decoded...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", root, err)
	}
	return objects, nil
}

// remembered has the objects of streams by the hash of their content: the same few are decoded again and again, which
// is nearly all that a plan costs. There is room for all files of an installation, some of them twice.
var remembered = lru.New(512)

// Decode reads the objects of a YAML stream, which are the caller's own. A document without a kind is an error.
func Decode(content []byte) ([]*unstructured.Unstructured, error) {
	key := sha256.Sum256(content)
	known, found := remembered.Get(key)
	if !found {
		decoded, err := decode(content)
		if err != nil {
			return nil, err
		}
		remembered.Add(key, decoded)
		known = decoded
	}
	var objects []*unstructured.Unstructured
	for _, object := range known.([]*unstructured.Unstructured) { //nolint:forcetypeassert // nothing else is added
		objects = append(objects, object.DeepCopy())
	}
	return objects, nil
}

func decode(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(objects)+1, err)
		}
		if len(object.Object) == 0 {
			continue // a comment between two lines of dashes
		}
		if object.GetKind() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("document %d has no kind or no name", len(objects)+1)
		}
		objects = append(objects, object)
	}
}
