package objecttransfer

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestThePhaseAndItsCondition(t *testing.T) {
	const empty, pending, running = cdiv1.ObjectTransferEmpty, cdiv1.ObjectTransferPending, cdiv1.ObjectTransferRunning
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", UID: "1"}}
	rec := newRecord(nil, claim, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	for name, c := range map[string]struct {
		phase           cdiv1.ObjectTransferPhase
		found           scope
		want            cdiv1.ObjectTransferPhase
		message, reason string
		data            bool
	}{
		"new":                       {empty, scope{}, pending, "Initializing", "", false},
		"nothing in the way":        {pending, scope{}, pending, "Pending", "", false},
		"something in the way":      {pending, scope{obstacle: &obstacle{message: sayPods, reason: "vm"}}, pending, "Pods using PVC", "vm", false},
		"it begins":                 {pending, scope{begun: true, rec: rec}, running, "Running", "", true},
		"it runs":                   {running, scope{}, running, "Running", "", true},
		"it waits":                  {running, scope{obstacle: &obstacle{message: sayBinding, reason: "soon"}}, running, "Waiting for target to be bound", "soon", true},
		"the API server is away":    {running, scope{failure: errors.New("no route")}, running, "Error", "no route", true},
		"it cannot end":             {running, scope{obstacle: &obstacle{message: sayWrongClaim, reason: "a", final: true}}, cdiv1.ObjectTransferError, "PV bound to wrong PVC", "a", true},
		"it cannot begin":           {pending, scope{obstacle: &obstacle{message: sayError, reason: "kind", final: true}}, cdiv1.ObjectTransferError, "Error", "kind", false},
		"it has ended":              {running, scope{done: true}, cdiv1.ObjectTransferComplete, "Transfer complete", "", false},
		"one that has failed stays": {cdiv1.ObjectTransferError, scope{}, cdiv1.ObjectTransferError, "before", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.found
			s.ot = &cdiv1.ObjectTransfer{Status: cdiv1.ObjectTransferStatus{Phase: c.phase}}
			if c.phase != empty {
				s.ot.Status.Conditions = []cdiv1.ObjectTransferCondition{{Type: cdiv1.ObjectTransferConditionComplete, Status: corev1.ConditionFalse, Message: "before"}}
			}
			if c.phase == running || c.phase == cdiv1.ObjectTransferError {
				s.ot.Status.Data = map[string]string{dataVolume: "pv"}
			}
			got, err := newStatus(&s, noon)
			if err != nil || len(got.Conditions) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			complete := got.Conditions[0]
			if got.Phase != c.want || complete.Message != c.message || complete.Reason != c.reason || (complete.Status == corev1.ConditionTrue) != s.done {
				t.Errorf("the status is %+v", got)
			}
			if (got.Data[dataVolume] == "pv") != c.data {
				t.Errorf("the data is %v", got.Data)
			}
		})
	}
}

func TestAConditionThatSaysTheSameKeepsItsTime(t *testing.T) {
	s := &scope{ot: &cdiv1.ObjectTransfer{}, obstacle: &obstacle{message: sayNoSource, reason: "a"}}
	first, err := newStatus(s, noon)
	if err != nil {
		t.Fatal(err)
	}
	s.ot.Status = first
	for reason, want := range map[string]time.Time{"a": noon, "b": noon.Add(time.Hour)} {
		s.obstacle.reason = reason
		got, err := newStatus(s, noon.Add(time.Hour))
		if err != nil || !got.Conditions[0].LastTransitionTime.Time.Equal(want) || !got.Conditions[0].LastHeartbeatTime.Time.Equal(want) {
			t.Errorf("with reason %s: %+v, %v", reason, got.Conditions[0], err)
		}
	}
}
