//go:build e2e

// Package bench measures Slipway on a real cluster, each figure beside the goal that
// the project has set for it. Machines are noisy: times are compared within one run.
package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a process of a pod.
type process struct {
	pid     int
	command string
	// pss is its proportional set size in bytes.
	pss int64
}

// processesOf returns the processes of the pod with this uid on this machine, by their cgroup.
func processesOf(podUID string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !inPod(pid, podUID) {
			continue
		}
		pss, err := pssOf(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		found = append(found, process{pid: pid, command: filepath.Base(string(bytes.SplitN(cmdline, []byte{0}, 2)[0])), pss: pss})
	}
	return found, nil
}

func inPod(pid int, podUID string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && (bytes.Contains(data, []byte(podUID)) || bytes.Contains(data, []byte(strings.ReplaceAll(podUID, "-", "_"))))
}

// pssOf returns the proportional set size of a process in bytes.
func pssOf(pid int) (int64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("reading memory of process %d: %w", pid, err)
	}
	defer func() { _ = file.Close() }()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) >= 2 && fields[0] == "Pss:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("reading memory of process %d: no Pss", pid)
}

// memory is what a process holds, in bytes.
type memory struct {
	// resident is the sum of anonymous and file; peak is its largest value so far.
	resident, peak, anonymous, file, proportional int64
}

// memoryOf returns the memory of a process.
func memoryOf(pid int) (memory, error) {
	proportional, err := pssOf(pid)
	if err != nil {
		return memory{}, err
	}
	m := memory{proportional: proportional}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, fmt.Errorf("reading memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		field := map[string]*int64{"VmRSS": &m.resident, "VmHWM": &m.peak, "RssAnon": &m.anonymous, "RssFile": &m.file}[name]
		if field == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return memory{}, fmt.Errorf("reading memory of process %d: %w", pid, err)
		}
		*field = kib << 10
	}
	return m, nil
}

// mib is bytes in MiB.
func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
