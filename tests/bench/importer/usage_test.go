package importer

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/slipway-vm/slipway/tests/bench/goal"
)

// measured is the first argument of this program when it is started to measure another.
const measured = "measured"

// usage is what a program used until it ended: the most memory that was resident, in KiB, and bytes
// written, those to the page cache included.
type usage struct{ Peak, Written int64 }

// TestMain is the benchmark, or the small process between it and the program that it measures. The
// kernel keeps a program's peak until it ends, but begins it with that of the process which started the
// program, and this one is large.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == measured {
		os.Exit(runMeasured(os.Args[2], os.Args[3:]))
	}
	os.Exit(goal.Main(m))
}

// runMeasured runs a command and writes its usage to the file to. It returns the command's code.
func runMeasured(to string, command []string) int {
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends with this process
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if counted, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		data, _ := json.Marshal(usage{Peak: counted.Maxrss, Written: counted.Oublock * 512}) // two numbers
		if err := os.WriteFile(to, data, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return cmd.ProcessState.ExitCode()
}

// measure runs slipway and returns what it used and what it printed.
func (x *bench) measure(args []string) (used usage, text []byte, err error) {
	to := filepath.Join(x.dir, "usage")
	cmd := exec.CommandContext(x.ctx, os.Args[0], append([]string{measured, to, x.slipway}, args...)...)
	if text, err = cmd.CombinedOutput(); err != nil {
		return used, text, err
	}
	data, err := os.ReadFile(to)
	if err != nil {
		return used, text, err
	}
	return used, text, json.Unmarshal(data, &used)
}
