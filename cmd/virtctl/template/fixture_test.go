package template

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/scheme"
)

// cluster is an API in memory.
type cluster struct {
	client.WithWatch
	err error
}

func (c cluster) Namespace() (string, error)        { return "catalog", nil }
func (c cluster) Client() (client.WithWatch, error) { return c, c.err }

var unreachable = cluster{err: errors.New("no cluster")}

// newCluster serves templates in the given versions only, and has the objects in the files.
func newCluster(t *testing.T, versions string, files ...string) cluster {
	t.Helper()
	serve := func(o client.Object) error {
		gvk := o.GetObjectKind().GroupVersionKind()
		if strings.HasPrefix(gvk.Group, "template.") && !strings.Contains(versions, gvk.GroupVersion().String()) {
			return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
		}
		return nil
	}
	builder := fake.NewClientBuilder().WithScheme(scheme.New()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := serve(o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := serve(o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
	})
	for _, file := range files {
		builder = builder.WithObjects(object(t, file))
	}
	return cluster{WithWatch: builder.Build()}
}

func object(t *testing.T, file string) client.Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o, err := one(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// run runs a verb with the words of line, and stdin.
func run(t *testing.T, c Cluster, stdin, line string) (out, told string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "virtctl", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(NewCommand(c))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"template"}, strings.Fields(line)...))
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// refused fails the test unless the line is refused with the words, and prints nothing.
func refused(t *testing.T, c Cluster, line, want string) {
	t.Helper()
	out, _, err := run(t, c, "", line)
	if err == nil || !strings.Contains(err.Error(), want) || out != "" {
		t.Errorf("%s: got %v, want %q; it printed %q", line, err, want, out)
	}
}

// file writes content to a file of the test.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

var requests = schema.GroupVersionKind{Group: kubevirtGroup, Version: "v1beta1", Kind: kindRequest}
