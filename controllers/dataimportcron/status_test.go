package dataimportcron

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestAnImportSaysWhatHindersIt(t *testing.T) {
	condition := func(kind cdiv1.DataVolumeConditionType, reason, message string) cdiv1.DataVolumeCondition {
		return cdiv1.DataVolumeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	for name, c := range map[string]struct {
		schedule   string
		phase      cdiv1.DataVolumePhase
		conditions []cdiv1.DataVolumeCondition
		want       string // reason, and the message's end
	}{
		"nothing":   {phase: cdiv1.ImportInProgress, want: "ImportProgressing Import is progressing"},
		"an error":  {phase: cdiv1.ImportInProgress, conditions: []cdiv1.DataVolumeCondition{condition("Bound", "", ""), condition("Running", "Error", "no route")}, want: "ImportProgressing no route"},
		"a pod":     {phase: cdiv1.ImportScheduled, conditions: []cdiv1.DataVolumeCondition{condition("Running", "ContainerCreating", "soon")}, want: "ImportProgressing Import is progressing"},
		"a quota":   {phase: cdiv1.Pending, conditions: []cdiv1.DataVolumeCondition{condition("Bound", "ErrExceededQuota", "exceeded quota")}, want: "ImportProgressing exceeded quota"},
		"a failure": {schedule: "@daily", phase: cdiv1.Failed, conditions: []cdiv1.DataVolumeCondition{condition("Running", "Error", "no disk")}, want: "ImportFailed no disk; it is tried again at the next poll"},
		"one for good": {
			phase: cdiv1.Failed, conditions: []cdiv1.DataVolumeCondition{condition("Running", "Error", "no disk")},
			want: "ImportFailed no disk; nothing is polled without a schedule, so delete it to have it tried again",
		},
	} {
		cron := &cdiv1.DataImportCron{Spec: cdiv1.DataImportCronSpec{Schedule: c.schedule}}
		s := &scope{cron: cron, newest: newest{digest: someDigest}, current: &cdiv1.ImportStatus{Digest: someDigest}, dv: &cdiv1.DataVolume{}}
		s.dv.Status.Phase, s.dv.Status.Conditions = c.phase, c.conditions
		got := upToDate(s)
		reason, end, _ := strings.Cut(c.want, " ")
		if got.Reason != reason || !strings.HasSuffix(got.Message, end) || got.Status != corev1.ConditionFalse {
			t.Errorf("%s: it is %+v, want %s", name, got, c.want)
		}
	}
}
