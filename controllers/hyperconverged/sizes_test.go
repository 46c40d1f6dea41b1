package hyperconverged

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/catalog"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// Each of the three objects that the field has a switch in can turn them off; they are on otherwise.
func TestWhetherCommonInstancetypesAreWanted(t *testing.T) {
	const kubevirt, ssp = hcov1.AnnotationKubeVirtPatch, hcov1.AnnotationSSPPatch
	cases := map[string]struct {
		enabled           *bool // of HyperConverged
		annotation, patch string
		want              bool
		wantError         string // part of it; none when empty
	}{
		"nothing is said":            {want: true},
		"HyperConverged says yes":    {enabled: new(true), want: true},
		"HyperConverged says no":     {enabled: new(false)},
		"KubeVirt is patched to no":  {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/commonInstancetypesDeployment/enabled","value":false}]`},
		"the whole of it is patched": {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/commonInstancetypesDeployment","value":{"enabled":false}}]`},
		"a patch takes out the no": {
			enabled: new(false), annotation: kubevirt,
			patch: `[{"op":"add","path":"/spec/configuration","value":{"developerConfiguration":{"useEmulation":true}}}]`,
		},
		"SSP is patched to no":         {annotation: ssp, patch: `[{"op":"add","path":"/spec/featureGates","value":{"deployCommonInstancetypes":false}}]`},
		"SSP is patched to yes":        {annotation: ssp, patch: `[{"op":"add","path":"/spec/featureGates","value":{"deployCommonInstancetypes":true}}]`, want: true},
		"one no is enough":             {enabled: new(false), annotation: ssp, patch: `[{"op":"add","path":"/spec/featureGates","value":{"deployCommonInstancetypes":true}}]`},
		"SSP is patched to fetch some": {annotation: ssp, patch: `[{"op":"add","path":"/spec/commonInstancetypes","value":{"url":"https://x"}}]`, wantError: "/spec/commonInstancetypes/url"},
		"KubeVirt is patched to a word": {
			annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/commonInstancetypesDeployment/enabled","value":"no"}]`,
			wantError: "commonInstancetypesDeployment.enabled",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hco := theOne()
			if c.enabled != nil {
				hco.Spec.WorkloadSources.CommonInstancetypesDeployment = &virtv1.CommonInstancetypesDeployment{Enabled: c.enabled}
			}
			if c.patch != "" {
				hco.Annotations = map[string]string{c.annotation: c.patch}
			}
			if err := validate(hco, testOptions()); c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) || !strings.Contains(err.Error(), c.annotation) {
					t.Errorf("got %v, want an error with %q and the annotation's name", err, c.wantError)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			objects, err := operands(hco, testOptions().Values())
			if err != nil {
				t.Fatal(err)
			}
			spec, err := settings(objects[2])
			if err != nil {
				t.Fatal(err)
			}
			if got, err := sizesWanted(hco, objects[0], spec); err != nil || got != c.want {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestPlannedSizesAreMarked(t *testing.T) {
	options := testOptions()
	options.Sizes = catalog.Types()
	objects, err := planSizes(options.Sizes, options.Version)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		labels := object.GetLabels()
		if labels[LabelComponent] != componentSizes || labels[names.LabelManagedBy] != names.ManagedBy || labels["instancetype.kubevirt.io/vendor"] != "kubevirt.io" {
			t.Errorf("%s %s has labels %v", object.GetKind(), object.GetName(), labels)
		}
		if !isSize(object) || !bearsOurName(object) {
			t.Errorf("%s %s is not known again", object.GetKind(), object.GetName())
		}
	}
	planned, err := Planned(options)
	if err != nil || len(planned) < len(objects) || len(objects) != 119 {
		t.Errorf("%d objects, %d of them sizes, %v", len(planned), len(objects), err)
	}
	broken := fstest.MapFS{"instancetypes/x.yaml": {Data: []byte("kind: [")}}
	if _, err := planSizes(broken, "v1"); err == nil || !strings.Contains(err.Error(), "instancetypes/x.yaml") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestTakenNamesAreTold(t *testing.T) {
	s := &scope{hco: theOne(), sized: true, taken: []string{"a", "b", "c", "d", "e", "f", "g"}}
	now := metav1.NewTime(time.Unix(1000, 0))
	status := hyperConvergedStatus(s, summarize(s), "v1", now)
	told := meta.FindStatusCondition(status.Conditions, conditionTaken)
	if told == nil || told.Status != metav1.ConditionTrue || told.Reason != ReasonTaken || !strings.Contains(told.Message, ": a, b, c, d, e, and 2 more;") {
		t.Errorf("got %+v", told)
	}
	if status.SystemHealthStatus == hcov1.HealthError {
		t.Error("a name that is taken is no failure")
	}
	s.hco.Status, s.taken, s.sized = status, nil, false
	if status = hyperConvergedStatus(s, summarize(s), "v1", now); meta.FindStatusCondition(status.Conditions, conditionTaken) == nil {
		t.Error("a pass that did not get so far forgot what the last one found")
	}
	s.hco.Status, s.sized = status, true
	if status = hyperConvergedStatus(s, summarize(s), "v1", now); meta.FindStatusCondition(status.Conditions, conditionTaken) != nil {
		t.Error("the condition outlives its cause")
	}
}
