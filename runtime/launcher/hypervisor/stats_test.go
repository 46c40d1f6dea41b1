package hypervisor

import (
	"encoding/json"
	"testing"

	"libvirt.org/go/libvirt"
)

const devices = `<domain><devices>
<disk type="file" device="disk"><target dev="vda" bus="virtio"/><alias name="ua-rootdisk"/></disk>
<disk type="file" device="cdrom"><target dev="sda" bus="sata"/><alias name="sata0-0-0"/></disk>
<interface type="ethernet"><target dev="tap0" managed="no"/><alias name="ua-default"/></interface>
</devices></domain>`

func TestEachPairOfProcessorsCounts(t *testing.T) {
	if got := pairs([][]bool{{true, false, true}, {false, true, false}}); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
}

func TestStatsAreNamedAsInTheVMIAndInBytes(t *testing.T) {
	names, err := deviceNames(devices)
	if err != nil {
		t.Fatal(err)
	}
	record := &libvirt.DomainStats{
		Cpu: &libvirt.DomainStatsCPU{TimeSet: true, Time: 7, SystemSet: true},
		Balloon: &libvirt.DomainStatsBalloon{
			MaximumSet: true, Maximum: 262144, CurrentSet: true, Current: 131072, RssSet: true, Rss: 1024, MajorFaultSet: true, MajorFault: 5, Unused: 9,
		},
		Vcpu: []libvirt.DomainStatsVcpu{{State: libvirt.VCPU_RUNNING, TimeSet: true, Time: 3}, {State: libvirt.VCPU_OFFLINE}},
		Net:  []libvirt.DomainStatsNet{{NameSet: true, Name: "tap0", RxBytesSet: true, RxBytes: 11, TxDropSet: true, TxDrop: 2}, {RxBytesSet: true}},
		Block: []libvirt.DomainStatsBlock{
			{NameSet: true, Name: "vda", RdReqsSet: true, RdReqs: 4, FlTimesSet: true, FlTimes: 6}, {NameSet: true, Name: "sda"},
		},
	}
	got, err := json.Marshal(statsOf(record, names))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cpu":{"total":7,"system":0},` +
		`"vcpus":[{"id":0,"state":"running","time":3},{"id":1,"state":"offline"}],` +
		`"memory":{"domain":268435456,"balloon":134217728,"resident":1048576,"majorFaults":5},` +
		`"disks":[{"name":"rootdisk","reads":4,"flushTime":6},{"name":"sda"}],` +
		`"interfaces":[{"name":"default","receivedBytes":11,"sentDropped":2}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
