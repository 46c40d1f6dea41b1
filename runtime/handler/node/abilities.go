package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// cpuManagerState is the file, in its root folder, in which the kubelet keeps what its CPU
	// manager decided; maxState bounds what is read of it.
	cpuManagerState = "cpu_manager_state"
	maxState        = 4 << 20
	// policyStatic is the policy by which a pod gets processors for itself.
	policyStatic = "static"
	// realtimeRuntime is a setting of the kernel: the microseconds of each period that processes
	// in real time get at most, or unlimited.
	realtimeRuntime = "/proc/sys/kernel/sched_rt_runtime_us"
	unlimited       = "-1"
)

// abilities are the labels by which pods find a node that has processors for them alone (under
// both names that the field gives to that), and one for processors in real time.
func abilities(kubeletRoot, realtime string) (map[string]any, error) {
	static, staticErr := givesProcessors(kubeletRoot)
	labels := map[string]any{
		v1.DeprecatedCPUManager: strconv.FormatBool(static),
		v1.CPUManager:           strconv.FormatBool(static),
	}
	setting, err := os.ReadFile(realtime)
	if err == nil && strings.TrimSpace(string(setting)) == unlimited {
		labels[v1.RealtimeLabel] = "true"
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("reading how long processes in real time may run: %w", err)
		return labels, errors.Join(staticErr, err)
	}
	return labels, staticErr
}

// givesProcessors says whether the kubelet with this root folder gives pods processors of their
// own. It is false when that cannot be known; without the file it is no error. Nothing outside
// of the folder is read, whatever is linked to.
func givesProcessors(kubeletRoot string) (bool, error) {
	root, err := os.OpenRoot(kubeletRoot)
	if err != nil {
		return false, fmt.Errorf("opening the kubelet's root folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	if info, err := root.Lstat(cpuManagerState); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("looking for the state of the CPU manager: %w", err)
	} else if !info.Mode().IsRegular() {
		return false, fmt.Errorf("the state of the CPU manager, %s/%s, is no regular file", kubeletRoot, cpuManagerState)
	}
	file, err := root.Open(cpuManagerState)
	if err != nil {
		return false, fmt.Errorf("opening the state of the CPU manager: %w", err)
	}
	defer func() { _ = file.Close() }()
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.NewDecoder(io.LimitReader(file, maxState)).Decode(&state); err != nil {
		return false, fmt.Errorf("reading the state of the CPU manager: %w", err)
	}
	return state.PolicyName == policyStatic, nil
}
