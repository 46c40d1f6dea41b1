package modifyvmtemplate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	templatev1 "github.com/openshift/api/template/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// change is what the parameters ask for.
type change struct {
	sockets, cores, threads int64
	memory                  string

	templateLabels, templateAnnotations, vmLabels, vmAnnotations map[string]string

	disks, volumes, dataVolumes, parameters                             []item
	deleteDisks, deleteVolumes, deleteDataVolumes, deleteTemplateParams bool
}

// item is an object that has a name.
type item struct {
	name string
	tree map[string]any
}

// readChange reads the parameters and tells all that is wrong with them.
func readChange(call *declare.Call) (*change, error) {
	c := &change{memory: strings.TrimSpace(call.String("memory"))}
	var errs []error
	failed := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	var err error
	for _, cpu := range []struct {
		param, what string
		into        *int64
	}{{"cpuSockets", "sockets", &c.sockets}, {"cpuCores", "cores", &c.cores}, {"cpuThreads", "threads", &c.threads}} {
		*cpu.into, err = number(call.String(cpu.param))
		failed("wrong cpu "+cpu.what+" value", err)
	}
	failed("wrong memory value", checkMemory(c.memory))
	for _, list := range []struct {
		param, what string
		into        *map[string]string
		labels      bool
	}{
		{"templateLabels", "template labels", &c.templateLabels, true}, {"templateAnnotations", "template annotations", &c.templateAnnotations, false},
		{"vmLabels", "vm labels", &c.vmLabels, true}, {"vmAnnotations", "vm annotations", &c.vmAnnotations, false},
	} {
		*list.into, err = pairs(call.Array(list.param), list.labels)
		failed("wrong "+list.what, err)
	}
	c.disks, err = items[virtv1.Disk](call.Array("disks"), "name")
	failed("wrong disk definition", err)
	c.volumes, err = items[virtv1.Volume](call.Array("volumes"), "name")
	failed("wrong volume definition", err)
	c.dataVolumes, err = items[virtv1.DataVolumeTemplateSpec](call.Array("datavolumeTemplates"), "metadata", "name")
	failed("wrong datavolume template definition", err)
	c.parameters, err = items[templatev1.Parameter](call.Array("templateParameters"), "name")
	failed("wrong parameter definition", err)
	for _, remove := range []struct {
		param string
		into  *bool
	}{
		{"deleteDisks", &c.deleteDisks}, {"deleteVolumes", &c.deleteVolumes},
		{"deleteDatavolumeTemplate", &c.deleteDataVolumes}, {"deleteTemplateParameters", &c.deleteTemplateParams},
	} {
		if *remove.into, err = call.Bool(remove.param); err != nil {
			errs = append(errs, err)
		}
	}
	return c, errors.Join(errs...)
}

func number(text string) (int64, error) {
	if text = strings.TrimSpace(text); text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number: %w", text, err)
	}
	return int64(n), nil
}

func checkMemory(text string) error {
	if text == "" {
		return nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q: %w; write for example 4Gi", text, err)
	}
	if quantity.Sign() <= 0 {
		return fmt.Errorf("%q is not above zero", text)
	}
	return nil
}

// pairs reads items of the form KEY:VALUE. The values of labels hold no spaces.
func pairs(list []string, labels bool) (map[string]string, error) {
	read, err := declare.Pairs(list)
	if err != nil {
		return nil, err
	}
	for key, value := range read {
		if labels {
			value = strings.ReplaceAll(value, " ", "")
		}
		read[key] = strings.TrimSpace(value)
	}
	return read, nil
}

// items reads JSON objects of type T, whose name is at path.
func items[T any](list []string, path ...string) ([]item, error) {
	var read []item
	for _, text := range list {
		var tree map[string]any
		if err := json.Unmarshal([]byte(text), &tree); err != nil {
			return nil, fmt.Errorf("%s: each item is one JSON object: %w", text, err)
		}
		if !strings.Contains(text, "${{") {
			if err := yaml.UnmarshalStrict([]byte(text), new(T)); err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
		}
		name := nameAt(tree, path...)
		if name == "" {
			return nil, fmt.Errorf("%s: %s is required", text, strings.Join(path, "."))
		}
		read = append(read, item{name: name, tree: tree})
	}
	return read, nil
}

// nameAt returns the string at path, "" when there is none.
func nameAt(tree map[string]any, path ...string) string {
	for _, key := range path[:len(path)-1] {
		tree, _ = tree[key].(map[string]any)
	}
	name, _ := tree[path[len(path)-1]].(string)
	return name
}
