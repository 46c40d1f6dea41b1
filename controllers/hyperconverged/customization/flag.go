package customization

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-vm/slipway/internal/verbosity"
)

// apply puts in the place of the component among objects one whose program has the flags, too. Those that the operator sets itself
// stay, for the component's other parts go by them.
func (f Flags) apply(objects []*unstructured.Unstructured, program func() *pflag.FlagSet, path *field.Path) field.ErrorList {
	if len(f.Values) == 0 {
		return nil
	}
	for i, object := range objects {
		if object.GetName() != f.Component || object.GetKind() != "Deployment" && object.GetKind() != "DaemonSet" {
			continue
		}
		changed := object.DeepCopy()
		errs := f.set(changed, program, path)
		objects[i] = changed
		return errs
	}
	return field.ErrorList{field.InternalError(path, fmt.Errorf("component %s is not deployed", f.Component))}
}

// set gives object's container the flags.
func (f Flags) set(object *unstructured.Unstructured, program func() *pflag.FlagSet, path *field.Path) field.ErrorList {
	container, all, err := f.container(object)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	args, _, err := unstructured.NestedStringSlice(container, "args")
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("reading arguments of %s: %w", f.Component, err))}
	}
	var known *pflag.FlagSet
	if program != nil {
		known = program()
	}
	var errs field.ErrorList
	for _, given := range slices.Sorted(maps.Keys(f.Values)) {
		name := ownName(given)
		arg, problem := argument(known, args, name, f.Values[given], path.Key(given))
		if problem != nil {
			errs = append(errs, problem)
			continue
		}
		args = append(slices.DeleteFunc(args, func(old string) bool { return isOf(old, name) }), arg)
	}
	made := make([]any, len(args))
	for i, arg := range args {
		made[i] = arg
	}
	container["args"] = made
	if err := unstructured.SetNestedSlice(object.Object, all, "spec", "template", "spec", "containers"); err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("setting arguments of %s: %w", f.Component, err)))
	}
	return errs
}

// container is that of the component's program, and the list that it is in.
func (f Flags) container(object *unstructured.Unstructured) (map[string]any, []any, error) {
	all, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return nil, nil, fmt.Errorf("reading containers of %s: %w", f.Component, err)
	}
	for _, item := range all {
		if container, is := item.(map[string]any); is && container["name"] == f.Component {
			return container, all, nil
		}
	}
	return nil, nil, fmt.Errorf("%s has no container of that name", f.Component)
}

// fieldsVerbosity is the name of verbosity.Flag in the field's programs, by which their users' objects set it.
const fieldsVerbosity = "v"

// ownName is the name that our programs have for a flag of the field's.
func ownName(name string) string {
	if name == fieldsVerbosity {
		return verbosity.Flag
	}
	return name
}

// argument is the argument that sets a flag to value, or what is wrong with it. Known are the program's flags, args what it has.
func argument(known *pflag.FlagSet, args []string, name, value string, at *field.Path) (string, *field.Error) {
	var flag *pflag.Flag
	if known != nil {
		flag = known.Lookup(name)
	}
	if flag == nil {
		return "", field.NotSupported(at, name, settable(known, args))
	}
	if name != verbosity.Flag && slices.ContainsFunc(args, func(arg string) bool { return isOf(arg, name) }) {
		return "", field.Forbidden(at, "the operator sets this flag itself; others are: "+strings.Join(settable(known, args), ", "))
	}
	if value == "" {
		value = flag.NoOptDefVal // of a switch
	}
	if err := known.Set(name, value); err != nil {
		return "", invalid(at, "%s", err)
	}
	return "--" + name + "=" + value, nil
}

// settable are the flags of known that args do not set.
func settable(known *pflag.FlagSet, args []string) []string {
	var all []string
	if known == nil {
		return all
	}
	known.VisitAll(func(flag *pflag.Flag) {
		set := slices.ContainsFunc(args, func(arg string) bool { return isOf(arg, flag.Name) })
		if !flag.Hidden && (!set || flag.Name == verbosity.Flag) {
			all = append(all, flag.Name)
		}
	})
	return all
}

// isOf says whether arg sets the flag of that name.
func isOf(arg, name string) bool {
	return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=")
}
