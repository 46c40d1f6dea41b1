package hyperconverged

import (
	"strings"
	"testing"
)

func TestKubeletRootOf(t *testing.T) {
	line := func(root, target string) string {
		return "1 0 0:1 / / rw - overlay overlay rw\n870 840 8:1 " + root + " " + target + " rw,relatime - ext4 /dev/sda1 rw\n"
	}
	for name, c := range map[string]struct{ mountinfo, want string }{
		"the usual place":              {line("/var/lib/kubelet/pods/1b2c/etc-hosts", "/etc/hosts"), "/var/lib/kubelet"},
		"a place of its own":           {line("/data/kubelet/pods/1b2c/etc-hosts", "/etc/hosts"), "/data/kubelet"},
		"/var is a file system":        {line("/lib/kubelet/pods/1b2c/etc-hosts", "/etc/hosts"), "/var/lib/kubelet"},
		"it is a file system itself":   {line("/pods/1b2c/etc-hosts", "/etc/hosts"), "/var/lib/kubelet"},
		"in a btrfs subvolume":         {line("/@root/var/lib/kubelet/pods/1b2c/etc-hosts", "/etc/hosts"), "/var/lib/kubelet"},
		"hosts comes from the runtime": {line("/containers/1b2c/hosts", "/etc/hosts"), "/var/lib/kubelet"},
		"no such mount":                {line("/var/lib/kubelet/pods/1b2c/x", "/data"), "/var/lib/kubelet"},
		"no mounts at all":             {"", "/var/lib/kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := kubeletRootOf(strings.NewReader(c.mountinfo)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
