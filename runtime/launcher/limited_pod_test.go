//go:build integration

package launcher_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/overhead"
)

// TestWhatAMachineMayHaveFitsIntoItsOverhead measures a machine with a TPM and four processors while the
// guest's agent is asked for a probe, as the runtime asks.
func TestWhatAMachineMayHaveFitsIntoItsOverhead(t *testing.T) {
	vmi := guest()
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 4}
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{}
	vmi.Spec.ReadinessProbe = &v1.Probe{TimeoutSeconds: 60}
	p := answering(t, vmi)
	p.inGuest(switchOn+"; nproc; ls /dev/tpm0", "4\n/dev/tpm0\n")
	machine := overhead.Machine{Guest: 128 << 20, VCPUs: 4, Graphics: true, TPM: true}
	p.fits(machine)

	probe := p.probes("readiness", "sh", "-c", "until [ -e /tmp/measured ]; do sleep 1; done")
	machine.AgentProbes = 1
	p.fits(machine)
	p.exec("touch /tmp/measured")
	if err := probe.Wait(); err != nil {
		t.Errorf("the probe: %v", err)
	}
}

// probes starts a probe through the guest's agent in the pod.
func (p *pod) probes(kind string, command ...string) *exec.Cmd {
	p.t.Helper()
	args := []string{
		"-t", itoa(p.pid(programLauncher)), "-m", "-p", "-n", "-i", "-r", "-S", "107", "-G", "107", "--", "/usr/bin/virt-probe",
		"--socket", filepath.Join(names.LauncherPrivateDir, uid, names.LauncherProbeSocket), "--kind", kind, "--timeout-seconds", "600", "--",
	}
	probe := exec.CommandContext(p.t.Context(), "nsenter", append(args, command...)...)
	probe.Stdout, probe.Stderr = os.Stderr, os.Stderr
	if err := probe.Start(); err != nil {
		p.t.Fatal(err)
	}
	return probe
}

// TestAPodThatIsHeldToItsRequestHasRoom runs a pod in a cgroup whose memory is what a pod of the class
// Guaranteed asks for, and has the guest use all of its own, disks too: the kernel ends nothing.
func TestAPodThatIsHeldToItsRequestHasRoom(t *testing.T) {
	machine := overhead.Machine{Guest: 128 << 20, VCPUs: 1, Graphics: true, Limited: true}
	bound := held(t, machine.Guest+machine.Bytes())
	t.Setenv("POD_CGROUP", bound.dir)
	p := booted(t)
	if count := p.exec("mount -o remount,size=100% /dev/shm 2>/dev/null; dd if=/dev/zero of=/dev/shm/fill bs=1k count=$(awk '/MemAvailable/ {print int($2*0.7)}' /proc/meminfo); dd if=/dev/zero of=/dev/vdc bs=1M; sync; ls -s /dev/shm/fill").Stdout; !strings.Contains(count, "fill") {
		t.Errorf("the guest used nothing: %q", count)
	}
	t.Logf("the pod had %s at the most of %s", mebibytes(bound.number(t, bound.peak)), mebibytes(machine.Guest+machine.Bytes()))
	if killed := bound.killed(t); killed != 0 {
		t.Errorf("the kernel ended %d processes for want of memory", killed)
	}
	machine.Limited = false
	p.fits(machine)
}

// cgroup holds processes to their memory.
type cgroup struct {
	dir          string
	peak, events string // files: the most that was used, and what became of it
}

// held makes a cgroup with so much memory, of whichever version this machine has.
func held(t *testing.T, bytes int64) cgroup {
	t.Helper()
	root, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	group := cgroup{peak: "memory.max_usage_in_bytes", events: "memory.oom_control"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
		root, limit, group = "/sys/fs/cgroup", "memory.max", cgroup{peak: "memory.peak", events: "memory.events"}
	}
	group.dir = filepath.Join(root, fmt.Sprintf("launcher-test-%d", os.Getpid()))
	if err := os.Mkdir(group.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the processes end just before
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
			if err = os.Remove(group.dir); err == nil {
				return
			}
		}
		t.Error(err)
	})
	files := map[string]string{limit: fmt.Sprint(bytes)}
	if _, err := os.Stat(filepath.Join(group.dir, "memory.swap.max")); err == nil {
		files["memory.swap.max"] = "0"
	}
	var errs []error
	for name, content := range files {
		errs = append(errs, os.WriteFile(filepath.Join(group.dir, name), []byte(content), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return group
}

func (c cgroup) number(t *testing.T, file string) int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return int64(atoi(t, strings.TrimSpace(string(data))))
}

// killed is how many processes the kernel has ended.
func (c cgroup) killed(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, c.events))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
			return atoi(t, fields[1])
		}
	}
	t.Fatalf("%s does not tell:\n%s", c.events, data)
	return 0
}
