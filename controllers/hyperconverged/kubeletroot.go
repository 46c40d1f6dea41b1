package hyperconverged

import (
	"bufio"
	"io"
	"strings"
)

// defaultKubeletRoot is where most clusters keep it.
const defaultKubeletRoot = "/var/lib/kubelet"

// kubeletRootOf finds the kubelet's root folder on the node from the mounts of a pod's own
// process (/proc/self/mountinfo): the kubelet writes a pod's /etc/hosts to
// <root>/pods/<pod uid>/etc-hosts and mounts it from there. Without such a mount, and
// where the usual place explains what is seen, it is the usual place.
func kubeletRootOf(mountinfo io.Reader) string {
	const rootField, targetField = 3, 4
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= targetField || fields[targetField] != "/etc/hosts" {
			continue
		}
		root, rest, found := strings.Cut(fields[rootField], "/pods/")
		if !found || !strings.HasSuffix(rest, "/etc-hosts") || isUsual(root) {
			return defaultKubeletRoot
		}
		return root
	}
	return defaultKubeletRoot
}

// isUsual says whether seen can be the usual place. The kernel tells a path inside the
// file system that is mounted: it lacks the head of the path where /var or /var/lib is a
// file system of its own, and has more in front of it in a btrfs subvolume.
func isUsual(seen string) bool {
	return strings.HasSuffix(defaultKubeletRoot, seen) || strings.HasSuffix(seen, defaultKubeletRoot)
}
