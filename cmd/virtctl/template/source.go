package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// source is where a template comes from: the cluster, by name, or a file.
type source struct {
	name, file string
}

func (s *source) addFlags(command *cobra.Command, kind string) {
	command.Flags().StringVar(&s.name, flagName, "", "Name of the "+kind+", instead of the argument.")
	command.Flags().StringVarP(&s.file, flagFile, "f", "", "File with the "+kind+"; - is standard input.")
	command.MarkFlagsMutuallyExclusive(flagFile, flagName)
}

// resolve takes the argument as the name, and checks that there is exactly one source.
func (s *source) resolve(args []string) error {
	if len(args) > 0 {
		if s.file != "" {
			return errors.New("only one of name or file can be provided: leave out the argument, or --" + flagFile)
		}
		if s.name != "" {
			return errors.New("provide name either from positional argument or from flag: leave out --" + flagName)
		}
		s.name = args[0]
	}
	if s.name == "" && s.file == "" {
		return errNoSource
	}
	return nil
}

// kindOfSource is a kind in the versions that are read, the preferred first.
type kindOfSource struct {
	group, kind string
	versions    []string
}

// read returns the template, of one of the kind's versions.
func (s *source) read(cmd *cobra.Command, cluster Cluster, kind kindOfSource) (*unstructured.Unstructured, error) {
	if s.file != "" {
		return s.fromFile(cmd.InOrStdin(), kind)
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := cluster.Client()
	if err != nil {
		return nil, err
	}
	return kind.get(cmd.Context(), c, client.ObjectKey{Namespace: namespace, Name: s.name})
}

func (k kindOfSource) get(ctx context.Context, c client.Client, key client.ObjectKey) (*unstructured.Unstructured, error) {
	for _, version := range k.versions {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(schema.GroupVersionKind{Group: k.group, Version: version, Kind: k.kind})
		err := c.Get(ctx, key, found)
		if err == nil {
			return found, nil
		}
		if !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading %s %s: %w", k.kind, key, err)
		}
	}
	return nil, fmt.Errorf("reading %s %s: this cluster does not serve that kind (%s); give the template with --%s", k.kind, key, k.group, flagFile)
}

func (s *source) fromFile(stdin io.Reader, kind kindOfSource) (*unstructured.Unstructured, error) {
	in, name := stdin, "standard input"
	if s.file != "-" {
		file, err := os.Open(s.file)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flagFile, err)
		}
		defer file.Close()
		in, name = file, s.file
	}
	object, err := one(in)
	if err != nil {
		return nil, fmt.Errorf("--%s: reading %s: %w", flagFile, name, err)
	}
	if err := kind.check(object); err != nil {
		return nil, fmt.Errorf("--%s: %s holds %w", flagFile, name, err)
	}
	return object, nil
}

// buffer is how much of a file tells YAML from JSON.
const buffer = 1024

// one decodes the one object that is in a file.
func one(in io.Reader) (*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(in, buffer)
	var found *unstructured.Unstructured
	for {
		tree := map[string]any{}
		err := decoder.Decode(&tree)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err //nolint:wrapcheck // the caller says what was read
		}
		if len(tree) == 0 {
			continue
		}
		if found != nil {
			return nil, errors.New("it holds more than one object; give a file with the template alone")
		}
		found = &unstructured.Unstructured{Object: tree}
	}
	if found == nil {
		return nil, errors.New("it holds no object")
	}
	return found, nil
}

// check returns an error that goes on from "holds" when object is of another kind.
func (k kindOfSource) check(object *unstructured.Unstructured) error {
	is := object.GroupVersionKind()
	if is.Group == k.group && is.Kind == k.kind {
		return nil
	}
	advice := ""
	switch {
	case is.Group == openshiftGroup && is.Kind == kindTemplate:
		advice = "; convert it first, as in: virtctl template convert -f FILE | virtctl template process -f -"
	case is.Group == kubevirtGroup && is.Kind == kindMachineTemplate:
		advice = "; it needs no conversion: process it"
	}
	return fmt.Errorf("%s of %s, and not %s of %s%s", or(is.Kind, "an object without a kind"), or(is.GroupVersion().String(), "no group"), k.kind, k.group, advice)
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
