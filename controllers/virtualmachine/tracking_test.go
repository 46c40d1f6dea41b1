package virtualmachine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestWhetherAVMCanBeBackedUp(t *testing.T) {
	const enabled, disabled, off = virtv1.ChangedBlockTrackingEnabled, virtv1.ChangedBlockTrackingDisabled, virtv1.ChangedBlockTrackingFGDisabled
	for name, c := range map[string]struct {
		before              virtv1.ChangedBlockTrackingState
		on, chosen, running bool
		want                virtv1.ChangedBlockTrackingState
	}{
		"it never was chosen":        {on: true, running: true},
		"it runs":                    {on: true, chosen: true, running: true, want: enabled},
		"it does not run":            {on: true, chosen: true, want: virtv1.ChangedBlockTrackingInitializing},
		"the gate is off":            {chosen: true, running: true, want: off},
		"the gate was turned on":     {before: off, on: true, chosen: true, running: true, want: enabled},
		"it was chosen":              {before: enabled, on: true, running: true, want: disabled},
		"it was chosen, in vain":     {before: off, running: true},
		"it was chosen a while back": {before: disabled, on: true, want: disabled},
	} {
		t.Run(name, func(t *testing.T) {
			if got := trackingState(c.before, c.on, c.chosen, c.running); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := instanceTracking(nil, false); got != "" {
		t.Errorf("an instance that was never chosen says %q", got)
	}
	if got := instanceTracking(&virtv1.ChangedBlockTrackingStatus{State: enabled}, false); got != disabled {
		t.Errorf("an instance that was chosen says %q", got)
	}
}

func TestSelectorsChooseByLabels(t *testing.T) {
	has := map[string]string{"backup": "yes"}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		want     bool
	}{
		"none":         {},
		"an empty one": {selector: &metav1.LabelSelector{}, want: true},
		"its label":    {selector: &metav1.LabelSelector{MatchLabels: has}, want: true},
		"another":      {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"backup": "no"}}},
		"none that is": {selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}},
	} {
		if got := matches(c.selector, has); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestVMsAreAskedAgainWhenOthersAreChosen(t *testing.T) {
	plain, choosing := &virtv1.KubeVirt{}, &virtv1.KubeVirt{}
	choosing.Spec.Configuration.ChangedBlockTrackingLabelSelectors = &virtv1.ChangedBlockTrackingSelectors{
		VirtualMachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"backup": "yes"}},
	}
	changed := trackingChanged()
	for name, c := range map[string]struct {
		before, after *virtv1.KubeVirt
		want          bool
	}{
		"nothing changes":         {plain, plain.DeepCopy(), false},
		"the same are chosen":     {choosing, choosing.DeepCopy(), false},
		"some are chosen":         {plain, choosing, true},
		"they are chosen no more": {choosing, plain, true},
	} {
		if got := changed.Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
