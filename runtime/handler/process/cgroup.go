package process

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// inPod says whether cgroups, the content of /proc/<pid>/cgroup, names the pod with
// uid. Kubelets name a pod's cgroup pod<uid> (cgroupfs driver) or
// kubepods-<class>-pod<uid with underscores>.slice (systemd driver).
func inPod(cgroups string, uid types.UID) bool {
	if uid == "" {
		return false
	}
	plain := "pod" + string(uid)
	slice := "pod" + strings.ReplaceAll(string(uid), "-", "_") + ".slice"
	for line := range strings.Lines(cgroups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:path
		if len(fields) != 3 {
			continue
		}
		for segment := range strings.SplitSeq(fields[2], "/") {
			if segment == plain || segment == slice || strings.HasSuffix(segment, "-"+slice) {
				return true
			}
		}
	}
	return false
}
