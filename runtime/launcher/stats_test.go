package launcher

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestAGuestCannotFillTheMetrics(t *testing.T) {
	all := []v1.VirtualMachineInstanceFileSystem{{MountPoint: "/" + strings.Repeat("x", maxName)}}
	for range 2 * maxFilesystems {
		all = append(all, v1.VirtualMachineInstanceFileSystem{MountPoint: "/"})
	}
	got := believable(all)
	if len(got) != maxFilesystems || got[0].MountPoint != "/" {
		t.Errorf("%d file systems, the first at %.20s", len(got), got[0].MountPoint)
	}
	if got := believable(nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}
