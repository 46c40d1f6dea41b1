package hyperconverged

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

func TestAnUpdateIsAnnouncedOnce(t *testing.T) {
	status := func(version string, progressing, complete bool) hcov1.HyperConvergedStatus {
		s := hcov1.HyperConvergedStatus{SystemHealthStatus: hcov1.HealthHealthy, Conditions: []metav1.Condition{
			{Type: "Progressing", Status: asStatus(progressing)}, {Type: "ReconcileComplete", Status: asStatus(complete)},
			{Type: "Available", Status: metav1.ConditionTrue}, {Type: "Upgradeable", Status: metav1.ConditionTrue},
		}}
		if version != "" {
			s.Versions = []hcov1.Version{{Name: "operator", Version: version}}
		}
		return s
	}
	now := metav1.NewTime(time.Now())
	for name, c := range map[string]struct {
		status hcov1.HyperConvergedStatus
		begins bool
	}{
		"another version":             {status("1.0", false, true), true},
		"the same":                    {status("2.0", false, true), false},
		"none before":                 {status("", false, true), false},
		"announced already":           {status("1.0", true, true), false},
		"the former one did not end":  {status("1.0", false, false), false},
		"a status of no version past": {hcov1.HyperConvergedStatus{}, false},
	} {
		got, begins := announcement(&hcov1.HyperConverged{Status: c.status}, "2.0", now)
		if begins != c.begins {
			t.Errorf("%s: announced %t", name, begins)
		}
		if !begins {
			continue
		}
		progressing := meta.FindStatusCondition(got.Conditions, "Progressing")
		if progressing.Status != metav1.ConditionTrue || progressing.Reason != ReasonUpdating || progressing.Message != "Updating from 1.0 to 2.0" {
			t.Errorf("%s: Progressing is %+v", name, progressing)
		}
		if meta.IsStatusConditionTrue(got.Conditions, "Upgradeable") || !meta.IsStatusConditionTrue(got.Conditions, "Available") || got.SystemHealthStatus != hcov1.HealthWarning {
			t.Errorf("%s: the status is %+v", name, got)
		}
		if again, begins := announcement(&hcov1.HyperConverged{Status: got}, "2.0", now); begins {
			t.Errorf("%s: announced again: %+v", name, again)
		}
	}
}
