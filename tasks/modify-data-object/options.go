package modifydataobject

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// options are the task's parameters, checked.
type options struct {
	manifest                   string
	wait, replace, remove, own bool
	removeKind, removeName     string
	timeout                    time.Duration
}

func readOptions(call *declare.Call) (options, error) {
	o := options{
		manifest:   call.String("manifest"),
		removeKind: call.Name("deleteObjectKind"),
		removeName: call.Name("deleteObjectName"),
	}
	var errs [5]error
	o.wait, errs[0] = call.Bool("waitForSuccess")
	o.replace, errs[1] = call.Bool("allowReplace")
	o.remove, errs[2] = call.Bool("deleteObject")
	o.own, errs[3] = call.Bool("setOwnerReference")
	o.timeout, errs[4] = call.Duration("timeout")
	if err := errors.Join(errs[:]...); err != nil {
		return o, err
	}
	switch {
	case o.remove && o.removeKind == "":
		return o, errors.New("delete-object-kind param has to be specified")
	case o.remove && o.removeName == "":
		return o, errors.New("delete-object-name param has to be specified")
	case o.remove && newObject(o.removeKind) == nil:
		return o, fmt.Errorf("delete-object-kind param has to have values DataVolume or DataSource, or PersistentVolumeClaim: %q is not known", o.removeKind)
	case !o.remove && strings.TrimSpace(o.manifest) == "":
		return o, errors.New("data-object-manifest param has to be specified")
	}
	return o, nil
}

// decode reads the manifest strictly: a field that its kind does not have is an error.
func decode(manifest string) (client.Object, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		return nil, fmt.Errorf("could not read data object manifest: %w", err)
	}
	if kind.APIVersion == "" || kind.Kind == "" {
		return nil, errors.New("could not read data object manifest: apiVersion and kind are required")
	}
	group := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind).Group
	object := newObject(kind.Kind)
	if group != cdiv1.SchemeGroupVersion.Group || object == nil || kind.Kind == "PersistentVolumeClaim" {
		return nil, fmt.Errorf("could not identify data object, wrong group or kind: %s %s; DataVolume and DataSource of cdi.kubevirt.io/v1beta1 are known", kind.APIVersion, kind.Kind)
	}
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		return nil, fmt.Errorf("could not read data object manifest: %w", err)
	}
	if object.GetName() == "" && object.GetGenerateName() == "" {
		return nil, fmt.Errorf("%s is invalid: metadata.name: Required value: name or generateName is required", kind.Kind)
	}
	return object, nil
}
