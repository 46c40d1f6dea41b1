//go:build integration

package launcher_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// pid finds a process of the pod by the name of its program, among the descendants
// of the pod's first process; one that is being started again is waited for.
func (p *pod) pid(program string) (found int) {
	p.t.Helper()
	p.retry("finding "+program, func() error {
		if found = p.look(program); found == 0 {
			return fmt.Errorf("no process %s in the pod", program)
		}
		return nil
	})
	return found
}

// look returns the process with that program at this moment, 0 for none. One that its like has made has yet to become
// something else.
func (p *pod) look(program string) int {
	p.t.Helper()
	out, err := exec.Command("ps", "-eo", "pid,ppid,comm").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	parents, names := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			parents[fields[0]], names[fields[0]] = fields[1], fields[2]
		}
	}
	root := itoa(p.cmd.Process.Pid)
	for id, name := range names {
		if !strings.HasPrefix(program, name) || names[parents[id]] == name || asks(id) {
			continue
		}
		for up := id; up != "" && up != "0"; up = parents[up] {
			if up == root {
				return atoi(p.t, id)
			}
		}
	}
	return 0
}

// asks says whether the process is a QEMU without a machine, which a libvirtd that begins asks what it can, or has ended.
func asks(id string) bool {
	line, err := os.ReadFile("/proc/" + id + "/cmdline")
	return err != nil || bytes.Contains(line, []byte("\x00-machine\x00none"))
}

func (p *pod) kill(program string, signal syscall.Signal) {
	p.t.Helper()
	id := p.pid(program)
	if err := syscall.Kill(id, signal); err != nil {
		p.t.Fatal(err)
	}
	if signal == syscall.SIGSTOP {
		p.retry(program+" stands still", func() error { return standsStill(id) })
	}
}

// standsStill fails as long as a thread of a process that was stopped may still run.
func standsStill(id int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", id))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			return fmt.Errorf("%s says %s", thread, stat)
		}
	}
	return nil
}

// logged waits until the launcher has logged a text.
func (p *pod) logged(what, text string) {
	p.t.Helper()
	deadline, look := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !strings.Contains(p.log.String(), text) {
		select {
		case <-look.C:
		case <-deadline:
			p.t.Fatalf("the launcher did not log %s (%q) within %s", what, text, patience)
		}
	}
}

func (p *pod) uptime() string { return strings.Fields(p.exec("cat /proc/uptime").Stdout)[0] }

func phase(want protocol.Phase) func(protocol.State) bool {
	return func(s protocol.State) bool { return s.Phase == want }
}

func TestAGuestOutlivesItsHandlerAndLibvirt(t *testing.T) {
	p := booted(t)
	before := p.uptime()

	p.away()
	p.forget()
	p.serve()
	p.connected()
	state := p.until("all of the state again", agentUp)
	if state.Phase != protocol.PhaseRunning || len(state.Disks) != 3 {
		t.Errorf("state told to a new handler: %+v", state)
	}
	var again protocol.State
	message := protocol.Sync{VMI: guest(), Facts: protocol.Facts{AllowEmulation: true}}
	if err := p.conn.Call(t.Context(), protocol.TypeSync, message, &again); err != nil || again.Phase != protocol.PhaseRunning {
		t.Errorf("a sync without files by a new handler: %+v, %v", again, err)
	}

	p.killLibvirtd()
	p.tells("the agent after libvirtd died", agentUp)
	if after := p.uptime(); len(after) < len(before) || after <= before && len(after) == len(before) {
		t.Errorf("uptime went from %s to %s", before, after)
	}

	run := p.exec(boot).Stdout
	p.execLast("(sleep 1; reboot -f) >/dev/null 2>&1 &")
	p.restarted(run)
	p.execLast("(sleep 1; poweroff) >/dev/null 2>&1 &")
	state = p.until("the end", phase(protocol.PhaseShutdown))
	if code := p.exit(); code != 0 || state.Reason != "GuestShutdown" {
		t.Errorf("exit code %d, %+v", code, state)
	}
}

// killLibvirtd ends libvirt's daemon, and waits for the next one.
func (p *pod) killLibvirtd() {
	p.t.Helper()
	before := p.pid("libvirtd")
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.retry("another libvirtd", func() error {
		if now := p.look("libvirtd"); now == before || now == 0 {
			return fmt.Errorf("libvirtd is process %d, and was %d", now, before)
		}
		return nil
	})
}

func TestTheFirstLibvirtdMayDieBeforeItIsUsed(t *testing.T) {
	t.Setenv("POD_LIBVIRTD_DIES", "1")
	p := start(t)
	p.connected()
	if _, err := p.sync(unbootable()); err != nil {
		t.Fatal(err)
	}
	p.until("the guest", phase(protocol.PhaseRunning))
	if _, err := os.Stat(filepath.Join(p.dir, "libvirt", "died")); err != nil {
		t.Errorf("the first libvirtd did not die: %v", err)
	}
}

func TestSIGTERMShutsTheGuestDown(t *testing.T) {
	p := booted(t, "--grace-period-seconds", "600")
	p.kill("virt-launcher", syscall.SIGTERM)
	state := p.until("the end", phase(protocol.PhaseShutdown))
	if code := p.exit(); code != 0 || state.Reason != "GuestShutdown" {
		t.Errorf("exit code %d, %+v", code, state)
	}
}

func TestSIGTERMBeforeAnySyncEndsTheLauncher(t *testing.T) {
	p := start(t)
	p.connected()
	before := time.Now()
	p.kill("virt-launcher", syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("ended in %s", time.Since(before))
}

// unbootable is a guest without an operating system: nobody hears the power button.
func unbootable() *v1.VirtualMachineInstance {
	vmi := guest()
	vmi.Spec.Domain.Devices.Disks = vmi.Spec.Domain.Devices.Disks[2:]
	return vmi
}

func TestADeafGuestIsPoweredOff(t *testing.T) {
	cases := map[string]struct {
		grace int64
		says  string
	}{
		"at the end of its grace period": {grace: 3, says: "did not shut down within its grace period of 3s"},
		"at once without one":            {grace: 0, says: "powered off without a grace period"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			p.connected()
			if state, err := p.sync(unbootable()); err != nil || state.Phase != protocol.PhaseRunning {
				t.Fatalf("%+v, %v", state, err)
			}
			before := time.Now()
			if err := p.conn.Call(t.Context(), protocol.TypeShutdown, protocol.Shutdown{GracePeriodSeconds: c.grace}, nil); err != nil {
				t.Fatal(err)
			}
			state := p.until("the end", phase(protocol.PhaseShutdown))
			code := p.exit()
			took := time.Since(before)
			if code != 0 || state.Reason != "Destroyed" || !strings.Contains(state.Message, c.says) || took < time.Duration(c.grace)*time.Second {
				t.Errorf("exit code %d after %s, %+v", code, took, state)
			}
			t.Logf("ended in %s: %s", took, state.Message)
		})
	}
}

func TestTheEndOfQEMUIsACrashWithItsCause(t *testing.T) {
	for name, c := range map[string]struct {
		begin  func(t *testing.T, args ...string) *pod
		signal syscall.Signal
		want   string
	}{
		"of a guest that runs": {booted, syscall.SIGKILL, "QEMU was killed by signal 9; the usual cause is the memory limit of the pod"},
		"by itself":            {unbooted, syscall.SIGABRT, "QEMU was ended by signal 6 (aborted)"},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.begin(t)
			p.qemuSays("of the pod's own QEMU: Assertion `fine' failed.")
			before := time.Now()
			p.kill("qemu-system-x86_64", c.signal)
			state := p.until("the crash", phase(protocol.PhaseCrashed))
			t.Logf("told after %s: %s", time.Since(before), state.Message)
			code := p.exit()
			last, err := os.ReadFile(filepath.Join(p.dir, "termination-log"))
			if code != 1 || state.Message != c.want+"; it said: of the pod's own QEMU: Assertion `fine' failed." || err != nil || !strings.Contains(string(last), c.want) {
				t.Errorf("exit code %d, state %+v, last words %q (%v)", code, state, last, err)
			}
		})
	}
}

// qemuSays writes a line where QEMU writes its own.
func (p *pod) qemuSays(line string) {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "libvirt/cache/libvirt/qemu/log/*.log"))
	if err != nil || len(found) != 1 {
		p.t.Fatalf("QEMU's log: %q, %v", found, err)
	}
	log, err := os.OpenFile(found[0], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.WriteString(line + "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// unbooted is a pod whose QEMU runs without anything to boot.
func unbooted(t *testing.T, args ...string) *pod {
	t.Helper()
	p := start(t, args...)
	p.connected()
	if state, err := p.sync(unbootable()); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("%+v, %v", state, err)
	}
	return p
}

// A libvirt that stands still tells nothing of QEMU's end and does not end when it is asked to.
func TestAStuckLibvirtHidesNoEnd(t *testing.T) {
	cases := map[string]struct {
		end    func(p *pod)
		phase  protocol.Phase
		reason string
		code   int
	}{
		"of a QEMU that is killed": {
			end: func(p *pod) { p.kill("qemu-system-x86_64", syscall.SIGKILL) }, phase: protocol.PhaseCrashed, reason: "QEMUEnded", code: 1,
		},
		"that was asked for": {
			end: func(p *pod) { p.shutDown(p.t, protocol.Shutdown{}) }, phase: protocol.PhaseShutdown, reason: "Destroyed", code: 0,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			p.connected()
			if state, err := p.sync(unbootable()); err != nil || state.Phase != protocol.PhaseRunning {
				t.Fatalf("%+v, %v", state, err)
			}
			p.kill("libvirtd", syscall.SIGSTOP)
			before := time.Now()
			c.end(p)
			state := p.until("the end", phase(c.phase))
			code := p.exit()
			if code != c.code || state.Reason != c.reason {
				t.Errorf("exit code %d, %+v", code, state)
			}
			t.Logf("ended in %s: %s", time.Since(before), state.Message)
		})
	}
}

func TestTheLastStateWaitsForAHandler(t *testing.T) {
	p := start(t)
	p.connected()
	if state, err := p.sync(unbootable()); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("%+v, %v", state, err)
	}
	p.away()
	p.forget()
	p.kill("qemu-system-x86_64", syscall.SIGKILL)
	p.logged("the end of QEMU", "The virtual machine has ended")
	p.serve()
	p.connected()
	p.until("the crash", phase(protocol.PhaseCrashed))
	if code := p.exit(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

func TestWhatCannotBeStartedFailsWithItsReason(t *testing.T) {
	image := filepath.Join(t.TempDir(), "evil.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", "-u", image, "1M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cases := map[string]struct {
		image string
		edit  func(*protocol.Sync)
		want  string
	}{
		"an image with a backing file":     {image: image, want: "VolumesNotReady"},
		"no KVM and emulation not allowed": {edit: func(s *protocol.Sync) { s.Facts.AllowEmulation = false }, want: "KVMUnavailable"},
		"a machine that QEMU has not":      {edit: func(s *protocol.Sync) { s.VMI.Spec.Domain.Machine = &v1.Machine{Type: "pc-q35-99.9"} }, want: "StartFailed"},
		"a field that is not built": {edit: func(s *protocol.Sync) {
			s.VMI.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "one", DeviceName: "vendor/model"}}
		}, want: "InvalidSpec"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			p.connected()
			file := openGuest(t)
			if c.image != "" {
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if file, err = os.Open(c.image); err != nil {
					t.Fatal(err)
				}
			}
			defer file.Close()
			message := protocol.Sync{VMI: guest(), Facts: protocol.Facts{AllowEmulation: true, ContainerDisks: []string{"root"}, Interfaces: links()}}
			if c.edit != nil {
				c.edit(&message)
			}
			_ = p.conn.Call(t.Context(), protocol.TypeSync, message, nil, file)
			state := p.until("the failure", phase(protocol.PhaseFailed))
			if code := p.exit(); code != 1 || state.Reason != c.want {
				t.Errorf("exit code %d, %+v", code, state)
			}
			t.Log(state.Message)
		})
	}
}

// TestAnAgentIsHeardAfterAnAnswerThatIsTooLong has the agent send more than libvirt takes, which gives its channel up for good.
func TestAnAgentIsHeardAfterAnAnswerThatIsTooLong(t *testing.T) {
	p := start(t)
	p.connected()
	vmi, memory := guest(), resource.MustParse("384Mi") // the agent holds the answer several times
	vmi.Spec.Domain.Memory.Guest = &memory
	if state, err := p.sync(vmi); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.until("the agent's report", agentUp)
	run, libvirtd := p.exec(boot).Stdout, p.pid("libvirtd")
	if _, err := p.askGuest("head -c 12000000 /dev/zero | tr '\\0' x"); err == nil {
		t.Error("libvirt takes an answer of any length")
	} else {
		t.Log(err)
	}
	if said := p.exec("echo heard").Stdout; said != "heard\n" {
		t.Errorf("the guest says %q", said)
	}
	p.logged("why libvirtd was ended", "it gave up the channel to the guest agent")
	p.tells("the agent afterwards", agentUp)
	if after, now := p.exec(boot).Stdout, p.pid("libvirtd"); after != run || now == libvirtd {
		t.Errorf("the guest's run was %s and is %s, libvirtd was process %d and is %d", run, after, libvirtd, now)
	}
}
