package virtualmachine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance"
)

// halted is a VM that is not to run, and lacks what is given.
func halted(found ...virtualmachineinstance.Lack) *scope {
	s := &scope{vm: &virtv1.VirtualMachine{}, now: now, foreseen: found}
	s.vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
	s.strategy, s.strategyError = strategyOf(s.vm)
	return s
}

var (
	importing = virtualmachineinstance.Lack{Reason: "ImportInProgress", Message: "import of DataVolume a at 40 %"}
	unbound   = virtualmachineinstance.Lack{Reason: "PVCNotBound", Message: "PVC b is unbound"}
	notThere  = virtualmachineinstance.Lack{Help: true, Reason: "FailedPvcNotFound", Message: "PVC c not found"}
	failed    = virtualmachineinstance.Lack{Help: true, Reason: "DataVolumeFailed", Message: "DataVolume d failed: 404"}
	onStart   = virtualmachineinstance.Lack{Start: true, Reason: "WaitForFirstConsumer", Message: "DataVolume e waits for a node to be chosen"}
)

func TestAHaltedVMTellsOfItsDisks(t *testing.T) {
	const ready = "Ready False VMINotExists VMI does not exist"
	for name, c := range map[string]struct {
		scope *scope
		word  virtv1.VirtualMachinePrintableStatus
		want  []string
	}{
		"nothing is missing":         {halted(), "Stopped", nil},
		"a disk is being filled":     {halted(importing, unbound), "Provisioning", []string{"Provisioning True ImportInProgress import of DataVolume a at 40 %; PVC b is unbound"}},
		"a disk waits for the start": {halted(onStart), "Stopped", []string{"Provisioning False WaitForFirstConsumer DataVolume e waits for a node to be chosen: it is filled when the VM is started"}},
		"a claim is missing":         {halted(notThere), "Stopped", []string{"Synchronized False FailedPvcNotFound PVC c not found"}},
		"one failed, one is filled": {halted(importing, failed), "DataVolumeError", []string{
			"Synchronized False DataVolumeFailed DataVolume d failed: 404", "Provisioning True ImportInProgress import of DataVolume a at 40 %",
		}},
		"its instance type is missing": {func() *scope {
			s := halted()
			s.unstartable = errors.New("instance type small is not there")
			return s
		}(), "Stopped", []string{"Failure True FailedCreate it cannot be started: instance type small is not there"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range conditions(c.scope) {
				got = append(got, fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message))
			}
			if want := append([]string{ready}, c.want...); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("it says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if word := printable(c.scope); word != c.word {
				t.Errorf("it is %s, want %s", word, c.word)
			}
		})
	}
}

// Two disks that are filled at once report at different times; the VM counts for both together.
func TestProgressIsWrittenEveryTenSecondsAtMost(t *testing.T) {
	s := halted(importing)
	s.now = now.Add(300 * time.Millisecond)
	message := func(at time.Duration, says string) string {
		t.Helper()
		next := halted(importing)
		next.foreseen[0].Message = says
		next.now, next.vm.Status.Conditions = now.Add(at), conditions(s)
		s = next
		return statusOf(s).Conditions[1].Message
	}
	for _, step := range []struct {
		at         time.Duration
		says, want string
		again      bool
	}{
		{time.Second, "41 %", importing.Message, true},
		{9 * time.Second, "42 %", importing.Message, true},
		{10 * time.Second, "43 %", "43 %", false},
		{12 * time.Second, "43 %", "43 %", false},
		{13 * time.Second, "44 %", "43 %", true},
		{60 * time.Second, "45 %", "45 %", false},
	} {
		got := message(step.at, step.says)
		if got != step.want || (s.result.RequeueAfter > 0) != step.again || s.result.RequeueAfter > progressStep {
			t.Errorf("after %s it says %q and looks again after %s, want %q and %v", step.at, got, s.result.RequeueAfter, step.want, step.again)
		}
	}
	s.vm.Status.Conditions = conditions(s)
	s.foreseen = []virtualmachineinstance.Lack{unbound}
	if got := statusOf(s).Conditions[1].Message; got != unbound.Message {
		t.Errorf("another reason is told later: %q", got)
	}
}
