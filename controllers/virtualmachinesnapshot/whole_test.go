package virtualmachinesnapshot

import (
	"strings"
	"testing"

	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestNotTakenNamesDisks(t *testing.T) {
	vm := fixture.VM("shop", "web", fixture.ContainerDisk("x/y:z"), fixture.Claim("there", "a"), fixture.Claim("nameless", "b"), fixture.Claim("missing", "c"))
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{Spec: vm.Spec}
	content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{{VolumeName: "there", VolumeSnapshotName: new("s")}, {VolumeName: "nameless"}}
	if got := strings.Join(NotTaken(content), " "); got != "nameless missing" {
		t.Errorf("not taken are %q", got)
	}
}
