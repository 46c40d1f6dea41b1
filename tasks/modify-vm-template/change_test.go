package modifyvmtemplate

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// read runs readChange on the parameters, strings or lists of strings.
func read(t *testing.T, params map[string]any) (*change, error) {
	t.Helper()
	var c *change
	task := Task()
	task.Run = func(_ context.Context, call *declare.Call) error {
		var err error
		c, err = readChange(call)
		return err
	}
	env, args := map[string]string{"PARAM_TEMPLATE_NAME": "t"}, []string{}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch value := params[name].(type) {
		case string:
			env[declare.Param{Name: name}.Env()] = value
		case []string:
			args = append(append(args, `params."`+name+`"@`), value...)
		}
	}
	err := task.Execute(t.Context(), declare.Environment{
		Args: args, Out: &bytes.Buffer{}, Log: slog.New(slog.DiscardHandler),
		LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
		Connect:   func() (client.WithWatch, error) { return nil, nil },
	})
	return c, err
}

// Each case changes a template of testdata into <case>.golden.yaml.
func TestApply(t *testing.T) {
	cases := map[string]struct {
		from   string
		params map[string]any
	}{
		"nothing": {"template", nil},
		"labels": {"template", map[string]any{
			"templateLabels": []string{"replaced: new", "new:label"}, "templateAnnotations": []string{"a: some", "text"},
			"vmLabels": []string{"vm:label"}, "vmAnnotations": []string{"url:http://x:1/"},
		}},
		"size": {"template", map[string]any{"cpuSockets": "2", "cpuCores": "4", "cpuThreads": "0", "memory": "4Gi"}},
		"replaced-and-added": {"template", map[string]any{
			"disks":               []string{`{"name":"root","disk":{"bus":"virtio"}}`, `{"name":"data","disk":{"bus":"virtio"}}`},
			"volumes":             []string{`{"name":"data","persistentVolumeClaim":{"claimName":"${DATA}"}}`, `{"name":"cd","containerDisk":{"image":"newer"}}`},
			"datavolumeTemplates": []string{`{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"name":"${NAME}-root"},"spec":{"sourceRef":{"kind":"DataSource","name":"debian"},"storage":{}}}`, `{"metadata":{"name":"more"},"spec":{"source":{"blank":{}},"storage":{"resources":{"requests":{"storage":"1Gi"}}}}}`},
			"templateParameters":  []string{`{"name":"CORES","value":"2"}`, `{"name":"DATA","description":"Claim","required":true}`},
		}},
		"deleted": {"template", map[string]any{"deleteDisks": "true", "deleteVolumes": "true", "deleteTemplateParameters": "true"}},
		"deleted-before-added": {"template", map[string]any{
			"deleteDatavolumeTemplate": "true", "deleteTemplateParameters": "true",
			"disks":              []string{`{"name":"new","bootOrder":"${{ORDER}}","disk":{"bus":"virtio"}}`},
			"templateParameters": []string{`{"name":"ORDER","value":"1"}`},
		}},
		"vmt": {"vmt", map[string]any{"memory": "2Gi", "cpuCores": "2", "templateLabels": []string{"a:b"}, "templateParameters": []string{`{"name":"MORE"}`}, "disks": []string{`{"name":"root"}`}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			read, err := read(t, c.params)
			if err != nil {
				t.Fatal(err)
			}
			template := load(t, c.from)
			for range 2 { // a retry changes nothing more
				if err := read.apply(template); err != nil {
					t.Fatal(err)
				}
			}
			got, err := yaml.Marshal(template.Object)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, filepath.Join("testdata", name+".golden.yaml"), got)
		})
	}
}

func load(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestReadRefuses(t *testing.T) {
	cases := map[string]struct {
		params map[string]any
		want   []string
	}{
		"numbers that are none": {
			map[string]any{"cpuSockets": "wrong cpu sockets", "cpuCores": "-1", "cpuThreads": "0x2"},
			[]string{"wrong cpu sockets value", `parsing "wrong cpu sockets": invalid syntax`, "wrong cpu cores value", `parsing "-1": invalid syntax`, "wrong cpu threads value"},
		},
		"a memory that is none": {map[string]any{"memory": "wrong memory value"}, []string{"wrong memory value", "quantities must match the regular expression"}},
		"a memory of nothing":   {map[string]any{"memory": "0"}, []string{"wrong memory value", "not above zero"}},
		"pairs without keys": {
			map[string]any{"templateLabels": []string{"x"}, "templateAnnotations": []string{"x"}, "vmLabels": []string{"x"}, "vmAnnotations": []string{"x"}},
			[]string{`wrong template labels: no key found before "x"; pair should be in "KEY:VAL" format`, "wrong template annotations: no key", "wrong vm labels: no key", "wrong vm annotations: no key"},
		},
		"no JSON": {
			map[string]any{"disks": []string{"wrong"}, "volumes": []string{"{key: value}"}, "datavolumeTemplates": []string{"[]"}, "templateParameters": []string{"1"}},
			[]string{"wrong disk definition: wrong: each item is one JSON object: invalid character 'w' looking for beginning of value", "wrong volume definition", "invalid character 'k'", "wrong datavolume template definition", "wrong parameter definition"},
		},
		"unknown fields":         {map[string]any{"disks": []string{`{"name":"a","colour":"red"}`}, "templateParameters": []string{`{"name":"a","fallback":"b"}`}}, []string{`unknown field "colour"`, `unknown field "fallback"`}},
		"no names":               {map[string]any{"disks": []string{`{}`}, "datavolumeTemplates": []string{`{"spec":{}}`}}, []string{"name is required", "metadata.name is required"}},
		"booleans that are none": {map[string]any{"deleteDisks": "yes", "deleteVolumes": "1"}, []string{`deleteDisks: "yes" is neither`, `deleteVolumes: "1" is neither`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, c.params)
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	c := &change{cores: 2}
	none := &unstructured.Unstructured{Object: map[string]any{"kind": "Template"}}
	if err := c.apply(none); err == nil || !strings.Contains(err.Error(), "no VM object found in the template") {
		t.Errorf("got %v", err)
	}
	odd := &unstructured.Unstructured{Object: map[string]any{"kind": "Template", "objects": []any{
		map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": "text"},
	}}}
	if err := c.apply(odd); err == nil || !strings.Contains(err.Error(), "not of the form that it should have") {
		t.Errorf("got %v", err)
	}
}
