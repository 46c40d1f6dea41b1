package customization

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// all stands for every kind, and for every name.
const all = "*"

// Patch is one of the patches.
type Patch struct {
	// Kind and Name are of what it changes, in any case; * is for all.
	Kind, Name string
	// Type is json, merge or strategic.
	Type string
	// Text is the patch itself, in JSON.
	Text string
}

// Flags are set of one component's program.
type Flags struct {
	// Field is the name of their field, Component that of the component: of its Deployment or DaemonSet, and of the container.
	Field, Component string
	// Values are what the flags are set to, by their names.
	Values map[string]string
}

// Customization is what one object says. The zero value says nothing.
type Customization struct {
	Patches []Patch
	Flags   []Flags
}

// Programs give the flags of components' programs, by the components' names: new ones at each call, whose values are then set.
type Programs map[string]func() *pflag.FlagSet

// OfKubeVirt reads kubevirt, which may be nil.
func OfKubeVirt(kubevirt *virtv1.KubeVirt) Customization {
	var c Customization
	if kubevirt == nil {
		return c
	}
	asked := kubevirt.Spec.CustomizeComponents
	for _, p := range asked.Patches {
		c.Patches = append(c.Patches, Patch{Kind: p.ResourceType, Name: p.ResourceName, Type: string(p.Type), Text: p.Patch})
	}
	if asked.Flags != nil {
		c.Flags = []Flags{
			{Field: "api", Component: "virt-api", Values: asked.Flags.API},
			{Field: "controller", Component: "virt-controller", Values: asked.Flags.Controller},
			{Field: "handler", Component: "virt-handler", Values: asked.Flags.Handler},
		}
	}
	return c
}

// OfCDI reads cdi, which may be nil. Flags of cdi-apiserver and cdi-deployment are not read: both have no program of their own.
func OfCDI(cdi *cdiv1.CDI) Customization {
	var c Customization
	if cdi == nil {
		return c
	}
	asked := cdi.Spec.CustomizeComponents
	for _, p := range asked.Patches {
		c.Patches = append(c.Patches, Patch{Kind: p.ResourceType, Name: p.ResourceName, Type: string(p.Type), Text: p.Patch})
	}
	if asked.Flags != nil {
		c.Flags = []Flags{{Field: "uploadProxy", Component: "cdi-uploadproxy", Values: asked.Flags.UploadProxy}}
	}
	return c
}

// Empty says whether c says nothing.
func (c Customization) Empty() bool {
	return len(c.Patches) == 0 && !slices.ContainsFunc(c.Flags, func(f Flags) bool { return len(f.Values) > 0 })
}

// Apply returns objects as c, which is at path, makes them: patches in the order of the list, then flags. Objects themselves stay as they
// are. Errors name the patch, or the flag, and what it does not apply to.
func (c Customization) Apply(objects []*unstructured.Unstructured, programs Programs, path *field.Path) ([]*unstructured.Unstructured, field.ErrorList) {
	made := slices.Clone(objects)
	var errs field.ErrorList
	for i, patch := range c.Patches {
		errs = append(errs, patch.apply(made, path.Child("patches").Index(i))...)
	}
	for _, flags := range c.Flags {
		errs = append(errs, flags.apply(made, programs[flags.Component], path.Child("flags", flags.Field))...)
	}
	return made, errs
}

// invalid is an error of a field whose value is not told: it may be long, and have what is secret.
func invalid(at *field.Path, format string, args ...any) *field.Error {
	return field.Invalid(at, field.OmitValueType{}, fmt.Sprintf(format, args...))
}

// matches says whether asked, a kind or a name, is that of an object.
func matches(asked, has string) bool {
	return asked == all || strings.EqualFold(asked, has)
}

// named is how an object is told of.
func named(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}
