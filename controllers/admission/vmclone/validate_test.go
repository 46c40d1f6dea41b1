package vmclone_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/vmclone"
)

type spec = clonev1.VirtualMachineCloneSpec

func wanted(changes ...func(*spec)) *clonev1.VirtualMachineClone {
	clone := &clonev1.VirtualMachineClone{Spec: spec{
		Source: &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"},
		Target: &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web2"},
	}}
	for _, change := range changes {
		change(&clone.Spec)
	}
	return clone
}

func TestACloneSaysWhatItMeans(t *testing.T) {
	labels := func(filters ...string) func(*spec) { return func(s *spec) { s.LabelFilters = filters } }
	macs := func(pairs ...string) func(*spec) {
		return func(s *spec) {
			s.NewMacAddresses = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				s.NewMacAddresses[pairs[i]] = pairs[i+1]
			}
		}
	}
	patch := func(text string) func(*spec) { return func(s *spec) { s.Patches = []string{text} } }
	for name, c := range map[string]struct {
		change func(*spec)
		want   string
	}{
		"nothing special":        {func(*spec) {}, ""},
		"no target":              {func(s *spec) { s.Target = nil }, ""},
		"a target without name":  {func(s *spec) { s.Target.Name = "" }, ""},
		"a target without group": {func(s *spec) { s.Target.APIGroup = nil }, ""},
		"a snapshot": {func(s *spec) {
			s.Source.APIGroup, s.Source.Kind, s.Source.Name = new("snapshot.kubevirt.io"), "VirtualMachineSnapshot", "web2"
		}, ""},
		"no source":                    {func(s *spec) { s.Source = nil }, "spec.source: Required value: Source cannot be nil"},
		"a source without group":       {func(s *spec) { s.Source.APIGroup = nil }, "spec.source.apiGroup: Required value: Source's APIGroup cannot be empty"},
		"a source of another group":    {func(s *spec) { s.Source.APIGroup = new("snapshot.kubevirt.io") }, "VirtualMachine is of kubevirt.io"},
		"another source":               {func(s *spec) { s.Source.Kind = "Pod" }, "spec.source.kind: Invalid value: \"Pod\": Source kind is not supported"},
		"a source without name":        {func(s *spec) { s.Source.Name = "" }, "spec.source.name: Required value: Source's name cannot be empty"},
		"another target":               {func(s *spec) { s.Target.Kind = "VirtualMachineSnapshot" }, "spec.target.kind: Invalid value: \"VirtualMachineSnapshot\": Target kind is not supported"},
		"a target of another group":    {func(s *spec) { s.Target.APIGroup = new("apps") }, "spec.target.apiGroup"},
		"itself":                       {func(s *spec) { s.Target.Name = "web" }, "spec.target.name: Invalid value: \"web\": Target name cannot be equal to source name when both are VirtualMachines"},
		"a target of no name":          {func(s *spec) { s.Target.Name = "A b" }, "spec.target.name: Invalid value"},
		"filters":                      {labels("*", "some/key", "some/*", "!some/key", "!other*"), ""},
		"a filter of nothing":          {labels("*", ""), "spec.labelFilters[1]: Invalid value: \"\": is empty"},
		"a negation alone":             {labels("!"), "a negation character is not a valid filter"},
		"a negation in a key":          {labels("some/!key"), "cannot contain a negation character (!); FilterRules: NegationChar can be only used at the beginning of the filter"},
		"a wildcard in a key":          {labels("some/*/key"), "cannot contain a wildcard character (*); FilterRules: WildcardChar can be only at the end of the filter"},
		"a regular expression":         {labels("^some/(a|b)$"), "a filter is not a regular expression"},
		"a wrong filter of a template": {func(s *spec) { s.Template.AnnotationFilters = []string{"!"} }, "spec.template.annotationFilters[0]"},
		"addresses":                    {macs("default", "02-00-00-00-00-01", "other", "02:00:00:00:00:02", "third", ""), ""},
		"an address that is none":      {macs("default", "00-11-22"), "spec.newMacAddresses.default: Invalid value: \"00-11-22\": interface default has malformed MAC address (00-11-22)."},
		"a multicast address":          {macs("default", "01:00:00:00:00:01"), "is a multicast address"},
		"an address twice":             {macs("a", "02:00:00:00:00:01", "b", "02-00-00-00-00-01"), "spec.newMacAddresses.b: Invalid value: \"02-00-00-00-00-01\": is the address of interface a, too"},
		"a patch":                      {patch(`{"op":"replace","path":"/spec/runStrategy","value":"Always"}`), ""},
		"a patch that is no JSON":      {patch(`op: add`), "spec.patches[0]: Invalid value: \"op: add\": patch is not valid JSON (op: add)"},
		"a patch of the name":          {patch(`{"op":"replace","path":"/metadata/name","value":"x"}`), "patching is valid only for elements under /spec/ only"},
	} {
		t.Run(name, func(t *testing.T) {
			err := vmclone.Validate(wanted(c.change)).ToAggregate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestACloneStaysWhatItIs(t *testing.T) {
	if errs := vmclone.ValidateUpdate(wanted(), wanted()); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := vmclone.ValidateUpdate(wanted(), wanted(func(s *spec) { s.Target.Name = "x" })); len(errs) != 1 || errs[0].Field != "spec" {
		t.Errorf("got %v", errs)
	}
}
