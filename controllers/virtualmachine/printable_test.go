package virtualmachine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// vmi makes a VMI in phase with conditions given as type, status, reason.
func vmi(phase virtv1.VirtualMachineInstancePhase, conditions ...[3]string) *virtv1.VirtualMachineInstance {
	v := &virtv1.VirtualMachineInstance{}
	v.UID = "vmi-uid"
	v.Status.Phase = phase
	for _, c := range conditions {
		v.Status.Conditions = append(v.Status.Conditions, virtv1.VirtualMachineInstanceCondition{
			Type: virtv1.VirtualMachineInstanceConditionType(c[0]), Status: corev1.ConditionStatus(c[1]), Reason: c[2],
		})
	}
	return v
}

func deleted(v *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	v.DeletionTimestamp = &metav1.Time{Time: now}
	return v
}

func inPhaseDV(phase cdiv1.DataVolumePhase) map[string]*cdiv1.DataVolume {
	return map[string]*cdiv1.DataVolume{"d": {Status: cdiv1.DataVolumeStatus{Phase: phase}}}
}

// copying is a migration of a volume for each of acts.
func copying(acts ...volumemigration.Act) *migration {
	m := &migration{}
	for _, act := range acts {
		m.verdicts = append(m.verdicts, volumemigration.Verdict{Act: act})
	}
	return m
}

func TestPrintable(t *testing.T) {
	failing := &virtv1.VirtualMachineStartFailure{ConsecutiveFailCount: 2}
	for name, c := range map[string]struct {
		strategy virtv1.VirtualMachineRunStrategy
		scope    scope
		want     virtv1.VirtualMachinePrintableStatus
		hasRun   bool
	}{
		"halted without a VMI":                       {virtv1.RunStrategyHalted, scope{}, "Stopped", false},
		"halted, its disk being filled":              {virtv1.RunStrategyHalted, scope{dataVolumes: inPhaseDV(cdiv1.ImportInProgress)}, "Provisioning", false},
		"halted, its disk failed":                    {virtv1.RunStrategyHalted, scope{dataVolumes: inPhaseDV(cdiv1.Failed)}, "DataVolumeError", false},
		"halted, its disk waits for a consumer":      {virtv1.RunStrategyHalted, scope{dataVolumes: inPhaseDV(cdiv1.WaitForFirstConsumer)}, "Stopped", false},
		"halted, its guest still running":            {virtv1.RunStrategyHalted, scope{vmi: vmi(virtv1.Running)}, "Stopping", false},
		"its volumes being copied":                   {virtv1.RunStrategyAlways, scope{migration: copying(volumemigration.Wait)}, "Provisioning", false},
		"halted, its volumes being copied":           {virtv1.RunStrategyHalted, scope{migration: copying(volumemigration.Wait)}, "Provisioning", false},
		"its volumes cannot be copied":               {virtv1.RunStrategyAlways, scope{migration: copying(volumemigration.Wait, volumemigration.Help)}, "DataVolumeError", false},
		"about to be started":                        {virtv1.RunStrategyAlways, scope{}, "Starting", false},
		"pending":                                    {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Pending)}, "Starting", false},
		"scheduled":                                  {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Scheduled)}, "Starting", false},
		"pulling an image":                           {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Scheduling, [3]string{"Provisioning", "True", "PullingImage"})}, "Starting", false},
		"running":                                    {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Running)}, "Running", false},
		"running with a failure of before":           {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Running), startFailure: failing}, "Running", false},
		"paused":                                     {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Running, [3]string{"Paused", "True", "PausedByUser"})}, "Paused", false},
		"QEMU does not answer":                       {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Running, [3]string{"Ready", "False", "QEMUUnresponsive"})}, "Unknown", false},
		"libvirt does not answer, the guest paused":  {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Running, [3]string{"Ready", "Unknown", "LibvirtUnresponsive"}, [3]string{"Paused", "True", "PausedByUser"})}, "Unknown", false},
		"stopped, its launcher does not answer":      {virtv1.RunStrategyAlways, scope{vmi: deleted(vmi(virtv1.Running, [3]string{"Ready", "Unknown", "LauncherUnresponsive"}))}, "Stopping", false},
		"being stopped":                              {virtv1.RunStrategyAlways, scope{vmi: deleted(vmi(virtv1.Running))}, "Stopping", false},
		"no node takes it":                           {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Scheduling, [3]string{"PodScheduled", "False", "Unschedulable"})}, "ErrorUnschedulable", false},
		"its image cannot be pulled":                 {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Scheduling, [3]string{"Synchronized", "False", "ErrImagePull"})}, "ErrImagePull", false},
		"its image is tried again later":             {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Scheduling, [3]string{"Synchronized", "False", "ImagePullBackOff"})}, "ImagePullBackOff", false},
		"its claim does not exist":                   {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Pending, [3]string{"Synchronized", "False", "FailedPvcNotFound"})}, "ErrorPvcNotFound", false},
		"its disk's import failed":                   {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Pending, [3]string{"Synchronized", "False", "DataVolumeFailed"})}, "DataVolumeError", false},
		"a claim is missing, another disk failed":    {virtv1.RunStrategyAlways, scope{dataVolumes: inPhaseDV(cdiv1.Failed), vmi: vmi(virtv1.Pending, [3]string{"Synchronized", "False", "FailedPvcNotFound"})}, "ErrorPvcNotFound", false},
		"its claim is unbound":                       {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Pending, [3]string{"Provisioning", "True", "PVCNotBound"})}, "WaitingForVolumeBinding", false},
		"its claim waits for the provisioning pod":   {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Pending, [3]string{"Provisioning", "True", "WaitForFirstConsumer"})}, "WaitingForVolumeBinding", false},
		"a disk that is not its own is being filled": {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Pending, [3]string{"Provisioning", "True", "ImportInProgress"})}, "Provisioning", false},
		"crashed, waiting to be started again":       {virtv1.RunStrategyAlways, scope{startFailure: failing}, "CrashLoopBackOff", false},
		"crashed just now":                           {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Failed), startFailure: failing}, "CrashLoopBackOff", false},
		"the guest powered off":                      {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Succeeded)}, "Stopped", false},
		"once, before its start":                     {virtv1.RunStrategyOnce, scope{}, "Starting", false},
		"once, running":                              {virtv1.RunStrategyOnce, scope{vmi: vmi(virtv1.Running)}, "Running", true},
		"once, failed":                               {virtv1.RunStrategyOnce, scope{vmi: vmi(virtv1.Failed)}, "Stopped", true},
		"once, its VMI was deleted":                  {virtv1.RunStrategyOnce, scope{}, "Stopped", true},
		"rerun on failure, before its start":         {virtv1.RunStrategyRerunOnFailure, scope{}, "Starting", false},
		"rerun on failure, the guest powered off":    {virtv1.RunStrategyRerunOnFailure, scope{vmi: vmi(virtv1.Succeeded)}, "Stopped", true},
		"rerun on failure, crashed just now":         {virtv1.RunStrategyRerunOnFailure, scope{vmi: vmi(virtv1.Failed), startFailure: failing}, "CrashLoopBackOff", true},
		"rerun on failure, its VMI was deleted":      {virtv1.RunStrategyRerunOnFailure, scope{}, "Stopped", true},
		"rerun on failure, waiting to be started":    {virtv1.RunStrategyRerunOnFailure, scope{vm: asked(), startFailure: failing}, "CrashLoopBackOff", true},
		"manual, never started":                      {virtv1.RunStrategyManual, scope{}, "Stopped", false},
		"manual, to be started":                      {virtv1.RunStrategyManual, scope{vm: asked()}, "Starting", true},
		"manual, running":                            {virtv1.RunStrategyManual, scope{vmi: vmi(virtv1.Running)}, "Running", true},
		"manual, its guest powered off":              {virtv1.RunStrategyManual, scope{vmi: vmi(virtv1.Succeeded)}, "Stopped", true},
		"manual, to be stopped":                      {virtv1.RunStrategyManual, scope{vm: requesting(stop), vmi: vmi(virtv1.Running)}, "Stopping", true},
		"to be restarted":                            {virtv1.RunStrategyAlways, scope{vm: requesting(stop, start), vmi: vmi(virtv1.Running)}, "Stopping", true},
		"halted, to be started paused":               {virtv1.RunStrategyHalted, scope{vm: requesting(startPaused)}, "Starting", false},
		"nobody knows":                               {virtv1.RunStrategyAlways, scope{vmi: vmi(virtv1.Unknown)}, "Unknown", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.scope
			s.now = now
			if s.vm == nil {
				s.vm = &virtv1.VirtualMachine{}
			}
			s.vm.Spec.RunStrategy = new(c.strategy)
			if s.strategy, s.strategyError = strategyOf(s.vm); s.strategyError != nil {
				t.Fatal(s.strategyError)
			}
			if c.hasRun {
				s.vm.Status.RunStrategy = c.strategy
			}
			s.requests = s.pending()
			if got := printable(&s); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	gone := scope{vm: &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}, vmi: vmi(virtv1.Running)}
	if got := printable(&gone); got != virtv1.VirtualMachineStatusTerminating {
		t.Errorf("a deleted VM: got %s", got)
	}
}

// entered gives v a phase at the time.
func entered(v *virtv1.VirtualMachineInstance, phase virtv1.VirtualMachineInstancePhase, at time.Time) *virtv1.VirtualMachineInstance {
	v.Status.PhaseTransitionTimestamps = append(v.Status.PhaseTransitionTimestamps, virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
		Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at),
	})
	return v
}

func TestNextFailure(t *testing.T) {
	counted := func(count int, uid string) *virtv1.VirtualMachineStartFailure {
		f := &virtv1.VirtualMachineStartFailure{ConsecutiveFailCount: count}
		f.LastFailedVMIUID = "other"
		if uid != "" {
			f.LastFailedVMIUID = "vmi-uid"
		}
		return f
	}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		current   *virtv1.VirtualMachineStartFailure
		vmi       *virtv1.VirtualMachineInstance
		want      int
		wantRetry time.Duration
	}{
		"no VMI changes nothing":                    {counted(2, ""), nil, 2, 0},
		"the first failure waits 10 s":              {nil, vmi(virtv1.Failed), 1, 10 * time.Second},
		"the third waits 90 s":                      {counted(2, ""), vmi(virtv1.Failed), 3, 90 * time.Second},
		"the ninth waits 5 min":                     {counted(8, ""), vmi(virtv1.Failed), 9, 5 * time.Minute},
		"a failure is counted once":                 {counted(2, "same"), vmi(virtv1.Failed), 2, 0},
		"a start in progress keeps the count":       {counted(2, ""), vmi(virtv1.Scheduling), 2, 0},
		"a guest that just came up keeps it":        {counted(2, ""), entered(vmi(virtv1.Running), virtv1.Running, ago(10*time.Second)), 2, 0},
		"a guest that stays up clears it":           {counted(2, ""), entered(vmi(virtv1.Running), virtv1.Running, ago(time.Minute)), 0, 0},
		"a guest that powered off clears it":        {counted(2, ""), vmi(virtv1.Succeeded), 0, 0},
		"a crash soon after the start is counted":   {nil, entered(entered(vmi(virtv1.Failed), virtv1.Running, ago(20*time.Second)), virtv1.Failed, now), 1, 10 * time.Second},
		"a crash after a long run restarts at once": {counted(2, ""), entered(entered(vmi(virtv1.Failed), virtv1.Running, ago(time.Hour)), virtv1.Failed, ago(time.Second)), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := nextFailure(c.current, c.vmi, now)
			switch {
			case c.want == 0 && got != nil:
				t.Fatalf("got %+v, want none", got)
			case c.want > 0 && (got == nil || got.ConsecutiveFailCount != c.want):
				t.Fatalf("got %+v, want a count of %d", got, c.want)
			}
			if c.wantRetry > 0 && got.RetryAfterTimestamp.Sub(now) != c.wantRetry {
				t.Errorf("waits %s, want %s", got.RetryAfterTimestamp.Sub(now), c.wantRetry)
			}
		})
	}
}
