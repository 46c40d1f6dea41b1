package virtualmachineinstance

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

func TestProcessorsAndMemoryOfItsOwn(t *testing.T) {
	const memory, disk, nic = "memory: {guest: 256Mi}", "name: root, disk: {bus: virtio}", "masquerade: {}"
	const pages, big = ", hugepages: {pageSize: 2Mi}}", "memory: {guest: 256Mi, hugepages: {pageSize: 2Mi}}"
	cpu := func(fields string) string { return "cpu: {" + fields + "}\n  " + memory }
	for name, c := range map[string]struct {
		old, replacement string
		want             string // the path and a part of the message; empty when it is admitted
	}{
		"huge pages":                            {memory, big, ""},
		"huge pages of the requested memory":    {memory, "memory: {hugepages: {pageSize: 2Mi}}\n  resources: {requests: {memory: 64Mi}}", ""},
		"huge pages of no size":                 {memory, "memory: {guest: 256Mi, hugepages: {}}", "spec.domain.memory.hugepages.pageSize: Unsupported value: \"\""},
		"huge pages of another size":            {memory, "memory: {guest: 256Mi, hugepages: {pageSize: 2048Ki}}", "spec.domain.memory.hugepages.pageSize: Unsupported value: \"2048Ki\": supported values: \"2Mi\", \"1Gi\""},
		"less memory than a page":               {memory, "memory: {guest: 256Mi, hugepages: {pageSize: 1Gi}}", "spec.domain.memory.guest: Invalid value: \"256Mi\": must be equal to or larger than page size"},
		"memory that is no whole pages":         {memory, "memory: {guest: 255Mi" + pages, "spec.domain.memory.guest: Invalid value: \"255Mi\": is not a multiple of the page size spec.domain.memory.hugepages.pageSize '2Mi'"},
		"huge pages that are to grow":           {memory, "memory: {guest: 256Mi, maxGuest: 1Gi" + pages, "spec.domain.memory.maxGuest: Forbidden"},
		"dedicated processors":                  {memory, cpu("cores: 2, dedicatedCpuPlacement: true, isolateEmulatorThread: true"), ""},
		"dedicated by what is requested":        {memory, cpu("dedicatedCpuPlacement: true") + "\n  resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}", ""},
		"an emulator alone, and nobody else":    {memory, cpu("isolateEmulatorThread: true"), "spec.domain.cpu.isolateEmulatorThread: Invalid value: true: IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"},
		"parts of processors":                   {memory, cpu("dedicatedCpuPlacement: true") + "\n  resources: {requests: {cpu: 1500m}}", "spec.domain.resources.requests.cpu: Invalid value: \"1500m\": provided resources CPU requests must be an integer"},
		"a limit of parts of processors":        {memory, cpu("dedicatedCpuPlacement: true") + "\n  resources: {limits: {cpu: 2500m}}", "spec.domain.resources.limits.cpu: Invalid value: \"2500m\": provided resources CPU limits must be an integer"},
		"other processors than the guest's":     {memory, cpu("cores: 4, dedicatedCpuPlacement: true") + "\n  resources: {requests: {cpu: 2}, limits: {cpu: 4}}", "spec.domain.cpu.dedicatedCpuPlacement: Invalid value: true: spec.domain.resources.requests.cpu must not be provided"},
		"memory that is more than is requested": {memory, cpu("dedicatedCpuPlacement: true") + "\n  resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}", "spec.domain.resources.requests.memory: Invalid value: \"1Gi\": must be equal to spec.domain.resources.limits.memory"},
		"three threads of a core":               {memory, cpu("threads: 3, dedicatedCpuPlacement: true"), "spec.domain.cpu.dedicatedCpuPlacement: Invalid value: true: Not more than two threads must be provided at spec.domain.cpu.threads (got 3)"},
		"dedicated, and growing":                {memory, cpu("sockets: 1, maxSockets: 4, dedicatedCpuPlacement: true"), "spec.domain.cpu.maxSockets: Invalid value: 4"},
		"nodes of NUMA alone":                   {memory, cpu("numa: {guestMappingPassthrough: {}}"), "spec.domain.cpu.numa.guestMappingPassthrough: Invalid value: \"{}\": spec.domain.cpu.dedicatedCpuPlacement must be set to true when NUMA topology strategy is set"},
		"nodes of NUMA without huge pages":      {memory, cpu("dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}"), "spec.domain.cpu.numa.guestMappingPassthrough: Invalid value: \"{}\": spec.domain.memory.hugepages must be requested"},
		"real time":                             {memory, "cpu: {cores: 4, dedicatedCpuPlacement: true, realtime: {mask: \"0-3, ^1\"}, numa: {guestMappingPassthrough: {}}}\n  " + big, ""},
		"real time, shared":                     {memory, cpu("realtime: {}"), "spec.domain.cpu.dedicatedCpuPlacement: Required value: spec.domain.cpu.dedicatedCpuPlacement must be set to true when spec.domain.cpu.realtime is used"},
		"real time anywhere":                    {memory, cpu("dedicatedCpuPlacement: true, realtime: {}"), "spec.domain.cpu.numa.guestMappingPassthrough: Required value: spec.domain.cpu.numa.guestMappingPassthrough must be defined"},
		"a mask of what is not there":           {memory, cpu("dedicatedCpuPlacement: true, realtime: {mask: 0-1}"), "spec.domain.cpu.realtime.mask: Invalid value: \"0-1\": the guest has no processor 1"},
		"a mask that is none":                   {memory, cpu("dedicatedCpuPlacement: true, realtime: {mask: all}"), "spec.domain.cpu.realtime.mask: Invalid value: \"all\": \"all\" is no processor"},
		"a mask of a range taken out":           {memory, cpu("cores: 4, dedicatedCpuPlacement: true, realtime: {mask: \"0-3,^1-2\"}"), "spec.domain.cpu.realtime.mask: Invalid value"},
		"a mask of nothing":                     {memory, cpu("dedicatedCpuPlacement: true, realtime: {mask: \"0,^0\"}"), "spec.domain.cpu.realtime.mask: Invalid value: \"0,^0\": no processor is left"},
		"tables of the firmware":                {memory, "firmware: {acpi: {slicNameRef: licence, msdmNameRef: licence}}\n  " + memory, ""},
		"tables that are none":                  {memory, "firmware: {acpi: {}}\n  " + memory, "spec.domain.firmware.acpi: Invalid value: \"{}\": ACPI was set but no SLIC nor MSDM volume reference was set"},
		"a table in no volume":                  {memory, "firmware: {acpi: {slicNameRef: nope}}\n  " + memory, "spec.domain.firmware.acpi.slicNameRef: Invalid value: \"nope\": spec.domain.firmware.acpi does not have a matching Volume."},
		"a table on a disk":                     {memory, "firmware: {acpi: {msdmNameRef: raw}}\n  " + memory, "spec.domain.firmware.acpi.msdmNameRef: Invalid value: \"raw\": spec.domain.firmware.acpi refers to Volume of unsupported type."},
		"tables without ACPI":                   {memory, "firmware: {acpi: {msdmNameRef: licence}}\n  features: {acpi: {enabled: false}}\n  " + memory, "spec.domain.features.acpi.enabled: Invalid value: false"},
		"a disk at its place":                   {disk, "name: root, disk: {bus: virtio, pciAddress: \"0000:00:0A.0\"}", ""},
		"a place that is none":                  {disk, "name: root, disk: {bus: virtio, pciAddress: \"0000:81:01.10\"}", "spec.domain.devices.disks[0].disk.pciAddress: Invalid value: \"0000:81:01.10\": disk spec.domain.devices.disks[0].name has malformed PCI address (0000:81:01.10)."},
		"a place on no bus of PCI":              {disk, "name: root, disk: {bus: scsi, pciAddress: \"0000:00:0a.0\"}", "spec.domain.devices.disks[0].disk.pciAddress: Invalid value: \"0000:00:0a.0\": disk spec.domain.devices.disks[0].name - setting a PCI address is only possible with bus type virtio."},
		"the place of the chipset":              {nic, "masquerade: {}, pciAddress: \"0000:00:1f.0\"", "spec.domain.devices.interfaces[0].pciAddress: Invalid value"},
		"a slot that a port has not":            {nic, "masquerade: {}, pciAddress: \"0000:03:01.0\"", "spec.domain.devices.interfaces[0].pciAddress: Invalid value"},
		"a domain that the machine has not":     {nic, "masquerade: {}, pciAddress: \"0001:03:00.0\"", "spec.domain.devices.interfaces[0].pciAddress: Invalid value"},
		"an interface at no place":              {nic, "masquerade: {}, pciAddress: here", "spec.domain.devices.interfaces[0].pciAddress: Invalid value: \"here\": interface spec.domain.devices.interfaces[0].name has malformed PCI address (here)."},
		"a bus that is too far off":             {nic, "masquerade: {}, pciAddress: \"0000:40:00.0\"", "spec.domain.devices.interfaces[0].pciAddress: Invalid value"},
		"an old device on a port":               {nic, "masquerade: {}, model: rtl8139, pciAddress: \"0000:03:00.0\"", "spec.domain.devices.interfaces[0].pciAddress: Invalid value"},
		"two disks at one place":                {disk + "}, {name: raw, disk: {bus: scsi}}", "name: root, disk: {bus: virtio, pciAddress: \"0000:00:0a.0\"}}, {name: raw, disk: {bus: virtio, pciAddress: \"0000:00:0A.0\"}}", "spec.domain.devices.disks[1].disk.pciAddress: Duplicate value"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(plain+"- {name: licence, secret: {secretName: s}}\n", c.old, c.replacement, 1)
			vmi := &virtv1.VirtualMachineInstance{}
			if err := yaml.UnmarshalStrict([]byte(text), &vmi.Spec); err != nil {
				t.Fatal(err)
			}
			defaults.Set(vmi, defaults.Cluster{})
			errs := Validate(&vmi.Spec, field.NewPath("spec"))
			if c.want == "" && len(errs) > 0 {
				t.Fatalf("refused: %v", errs)
			}
			if c.want == "" {
				return
			}
			for _, err := range errs {
				if strings.HasPrefix(err.Error(), c.want) {
					return
				}
			}
			t.Errorf("got %v, want %s", errs, c.want)
		})
	}
}

// A volume with a table of the firmware's is no disk, unless the guest is to have that, too.
func TestATableIsNoDisk(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	text := strings.Replace(plain+"- {name: licence, secret: {secretName: s}}\n", "devices:", "firmware: {acpi: {slicNameRef: licence}}\n  devices:", 1)
	if err := yaml.UnmarshalStrict([]byte(text), &vmi.Spec); err != nil {
		t.Fatal(err)
	}
	defaults.Set(vmi, defaults.Cluster{})
	if got := len(vmi.Spec.Domain.Devices.Disks); got != 2 {
		t.Errorf("%d disks, want the two that the VMI names", got)
	}
}
