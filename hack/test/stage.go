package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Stages that run at a time: two cores have room for four that wait for guests, pods and runs
// most of the time, and for one behind them that takes what time of the processors is left.
const (
	abreast = 4
	behind  = 1
)

// niceness is that of a stage behind the others.
const niceness = 10

// tail is how many of the last lines are shown of a failed stage that does not say what failed.
const tail = 120

// stage is one call of make.
type stage struct {
	name string
	// target is what make is called with; nil for the name alone.
	target []string
	// needs are stages that must have passed before.
	needs []string
	// after are stages that must have ended before, however they ended.
	after []string
	// behind is set for a stage that nothing waits for and that has no bounds of time: it runs
	// at a low priority, so that what the others wait for ends sooner.
	behind bool
}

// result is what became of a stage.
type result struct {
	name   string
	behind bool
	took   time.Duration
	// processors is the time of processors of what make started; of a suite that is without its pods.
	processors     time.Duration
	passed, failed int
	tests          []timed
	// failures name what failed.
	failures []string
}

// runAll runs the stages, abreast where their needs allow it, and returns the results in their order.
func runAll(ctx context.Context, chosen []stage) []result {
	finished := make(chan result)
	done := map[string]result{}
	waiting := slices.Clone(chosen)
	free, running := map[bool]int{false: abreast, true: behind}, 0
	for len(done) < len(chosen) {
		for {
			i := slices.IndexFunc(waiting, func(s stage) bool { return free[s.behind] > 0 && s.ready(chosen, done) })
			if i < 0 {
				break
			}
			s := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			if lacking := s.lacking(done); lacking != "" {
				fmt.Printf("%s  %-14s not run: %s failed\n", clock(), s.name, lacking)
				done[s.name] = result{name: s.name, failed: 1}
				continue
			}
			running++
			free[s.behind]--
			go func() { finished <- s.run(ctx) }()
		}
		if running == 0 {
			continue
		}
		r := <-finished
		running--
		free[r.behind]++
		done[r.name] = r
	}
	results := make([]result, len(chosen))
	for i, s := range chosen {
		results[i] = done[s.name]
	}
	return results
}

// ready says whether everything that comes before the stage has ended or was not chosen.
func (s stage) ready(chosen []stage, done map[string]result) bool {
	for _, need := range slices.Concat(s.needs, s.after) {
		_, ended := done[need]
		if !ended && slices.ContainsFunc(chosen, func(c stage) bool { return c.name == need }) {
			return false
		}
	}
	return true
}

// lacking returns a stage that this one needs and that failed, or "".
func (s stage) lacking(done map[string]result) string {
	for _, need := range s.needs {
		if done[need].failed > 0 {
			return need
		}
	}
	return ""
}

func (s stage) run(ctx context.Context) result {
	begun := time.Now()
	path := filepath.Join(logs, s.name+".log")
	fmt.Printf("%s  %-14s begins; tail -f %s\n", clock(), s.name, path)
	processors, err := s.execute(ctx, path)
	r := result{name: s.name, behind: s.behind, took: time.Since(begun), processors: processors}
	output, readErr := os.ReadFile(path)
	if readErr != nil {
		output = []byte(readErr.Error())
	}
	r.passed, r.failed = count(string(output))
	r.tests = tests(s.name, string(output))
	if err != nil && r.failed == 0 {
		r.failed = 1
	}
	if err == nil && r.passed == 0 {
		r.passed = 1 // a stage without tests of its own is one check
	}
	if r.failed == 0 {
		fmt.Printf("%s  %-14s passed after %s\n", clock(), s.name, r.took.Round(time.Second))
		return r
	}
	fmt.Printf("%s  %-14s FAILED after %s: %v; from %s:\n%s\n", clock(), s.name, r.took.Round(time.Second), err, path, excerpt(string(output)))
	r.failures = failures(string(output))
	return r
}

// execute runs the stage with its output to path, and returns the time of processors that it took.
func (s stage) execute(ctx context.Context, path string) (time.Duration, error) {
	log, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("making the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	target := s.target
	if target == nil {
		target = []string{s.name}
	}
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, target...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting make: %w", err)
	}
	if s.behind {
		if err := yield(cmd.Process.Pid); err != nil {
			fmt.Printf("%s  %-14s keeps its priority: %v\n", clock(), s.name, err)
		}
	}
	err = cmd.Wait()
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// yield lowers the priority of a session of its own: of its process, which its children inherit,
// and of the session among others where the kernel shares time by session (sched(7), autogroup).
func yield(pid int) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, pid, niceness); err != nil {
		return fmt.Errorf("lowering the priority: %w", err)
	}
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(niceness)), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lowering the session's priority: %w", err)
	}
	return nil
}

// clusterRuns says whether the local cluster was running already, or is none of ours.
func clusterRuns(ctx context.Context) bool {
	if os.Getenv("CLUSTER") == "existing" {
		return true
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-C", "hack/cluster", ".", "status", "--json")
	out, err := cmd.Output()
	return err == nil && strings.Contains(strings.ReplaceAll(string(out), " ", ""), `"running":true`)
}

func clock() string { return time.Now().Format("15:04:05") }
