package virtualmachineinstance

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// plain is a VMI's spec that is admitted; cases put more into its domain.
const plain = `
domain:
  memory: {guest: 256Mi}
  devices:
    interfaces: [{name: default, masquerade: {}}]
    disks: [{name: root, disk: {bus: virtio}}, {name: raw, disk: {bus: scsi}}]
networks: [{name: default, pod: {}}]
volumes:
- {name: root, containerDisk: {image: x}}
- {name: raw, persistentVolumeClaim: {claimName: raw}}
`

func TestDevicesThatCannotBeAreRefusedWithTheirPath(t *testing.T) {
	const disk, kernel, pool, nic = "name: raw, disk: {bus: scsi}", "  devices:", "  memory:", "masquerade: {}"
	for name, c := range map[string]struct {
		old, replacement string
		want             string // the path and a part of the message; empty when it is admitted
	}{
		"nothing special":                  {kernel, kernel, ""},
		"a sound device":                   {kernel, "  devices:\n    sound: {name: s, model: ac97}", ""},
		"a sound device without a name":    {kernel, "  devices:\n    sound: {model: ac97}", "spec.domain.devices.sound.name: Required value: Sound device requires a name field."},
		"a TPM and variables that stay":    {kernel, "  firmware: {bootloader: {efi: {persistent: true}}}\n  devices:\n    tpm: {persistent: true}", ""},
		"a lun":                            {disk, "name: raw, lun: {}", ""},
		"I/O past the cache":               {disk, "name: raw, io: native, disk: {bus: scsi}", ""},
		"I/O past the cache, said twice":   {disk, "name: raw, io: native, cache: none, disk: {bus: scsi}", ""},
		"I/O past a cache":                 {disk, "name: raw, io: native, cache: writeback, disk: {bus: scsi}", `spec.domain.devices.disks[1].io: Invalid value: "native": native goes past the cache of the node, and cache is writeback`},
		"I/O past another cache":           {disk, "name: raw, io: native, cache: writethrough, disk: {bus: scsi}", `spec.domain.devices.disks[1].io: Invalid value`},
		"blocks of the volume":             {disk, "name: raw, blockSize: {matchVolume: {}}, disk: {bus: scsi}", ""},
		"blocks of the volume and others":  {disk, "name: raw, blockSize: {matchVolume: {}, custom: {logical: 512, physical: 512}}, disk: {bus: scsi}", "spec.domain.devices.disks[1].blockSize: Forbidden: custom and matchVolume"},
		"blocks that need not match":       {disk, "name: raw, blockSize: {matchVolume: {enabled: false}, custom: {logical: 4096, physical: 4096}}, disk: {bus: scsi}", ""},
		"blocks of the volume on sata":     {disk, "name: raw, blockSize: {matchVolume: {}}, disk: {bus: sata}", "spec.domain.devices.disks[1].blockSize.matchVolume: Invalid value"},
		"large blocks on sata":             {disk, "name: raw, blockSize: {custom: {logical: 4096, physical: 4096}}, disk: {bus: sata}", "spec.domain.devices.disks[1].blockSize.custom.logical: Invalid value: 4096: must be 512 on the bus sata"},
		"large physical blocks on sata":    {disk, "name: raw, blockSize: {custom: {logical: 512, physical: 4096}}, disk: {bus: sata}", ""},
		"Hyper-V of the host":              {kernel, "  features: {hypervPassthrough: {enabled: true}}\n  devices:", ""},
		"Hyper-V of the host, and chosen":  {kernel, "  features: {hypervPassthrough: {enabled: true}, hyperv: {relaxed: {}}}\n  devices:", "spec.domain.features.hyperv: Forbidden: hypervPassthrough gives the guest all of them"},
		"Hyper-V of the host, not so":      {kernel, "  features: {hypervPassthrough: {enabled: false}, hyperv: {relaxed: {}}}\n  devices:", ""},
		"a Hyper-V timer without synic":    {kernel, "  features: {hyperv: {synictimer: {}, synic: {enabled: false}}}\n  devices:", "spec.domain.features.hyperv.synic: Invalid value: false: synictimer needs this feature"},
		"a Hyper-V flush without vpindex":  {kernel, "  features: {hyperv: {tlbflush: {}, vpindex: {enabled: false}}}\n  devices:", "spec.domain.features.hyperv.vpindex: Invalid value: false: tlbflush needs this feature"},
		"a hypervisor that must not be":    {kernel, "  cpu: {features: [{name: pcid}, {name: vmx, policy: disable}]}\n  features: {hyperv: {evmcs: {}, vapic: {}}}\n  devices:", `spec.domain.cpu.features[1].policy: Invalid value: "disable": features.hyperv.evmcs needs the CPU feature vmx`},
		"a hypervisor":                     {kernel, "  cpu: {features: [{name: vmx}]}\n  features: {hyperv: {evmcs: {}, vapic: {}}}\n  devices:", ""},
		"more overhead":                    {"{guest: 256Mi}", "{guest: 256Mi, reservedOverhead: {addedOverhead: 64Mi}}", ""},
		"less overhead":                    {"{guest: 256Mi}", "{guest: 256Mi, reservedOverhead: {addedOverhead: -1}}", "spec.domain.memory.reservedOverhead.addedOverhead: Invalid value"},
		"overhead that is not asked for":   {kernel, "  resources: {overcommitGuestOverhead: true}\n  devices:", ""},
		"huge pages with no overhead":      {"{guest: 256Mi}", "{guest: 256Mi, hugepages: {pageSize: 2Mi}}\n  resources: {overcommitGuestOverhead: true}", "spec.domain.resources.overcommitGuestOverhead: Forbidden"},
		"a lun on what is no device":       {"name: root, disk: {bus: virtio}", "name: root, lun: {}", "spec.domain.devices.disks[0].lun: Invalid value"},
		"a lun with a serial":              {disk, "name: raw, serial: s, lun: {}", "spec.domain.devices.disks[1].serial: Invalid value"},
		"a lun with a block size":          {disk, "name: raw, blockSize: {custom: {logical: 512, physical: 512}}, lun: {}", "spec.domain.devices.disks[1].blockSize: Invalid value"},
		"a disk that others write to":      {disk, "name: raw, shareable: true, disk: {bus: scsi}", ""},
		"a disk that others cannot have":   {"name: root, disk: {bus: virtio}", "name: root, shareable: true, disk: {bus: virtio}", "spec.domain.devices.disks[0].shareable: Invalid value: true: the volume is made for this guest alone"},
		"a supplemental pool":              {pool, "  ioThreadsPolicy: supplementalPool\n  ioThreads: {supplementalPoolThreadCount: 4}\n  memory:", ""},
		"a supplemental pool of no size":   {pool, "  ioThreadsPolicy: supplementalPool\n  memory:", "spec.domain.ioThreads.supplementalPoolThreadCount: Required value: the number of iothreads needs to be set"},
		"a supplemental pool of none":      {pool, "  ioThreadsPolicy: supplementalPool\n  ioThreads: {supplementalPoolThreadCount: 0}\n  memory:", "spec.domain.ioThreads.supplementalPoolThreadCount: Required value"},
		"a supplemental pool of far more":  {pool, "  ioThreadsPolicy: supplementalPool\n  ioThreads: {supplementalPoolThreadCount: 5000}\n  memory:", "spec.domain.ioThreads.supplementalPoolThreadCount: Invalid value"},
		"a size without the policy for it": {pool, "  ioThreadsPolicy: shared\n  ioThreads: {supplementalPoolThreadCount: 4}\n  memory:", "spec.domain.ioThreads.supplementalPoolThreadCount: Invalid value"},
		"a kernel":                         {kernel, "  firmware: {kernelBoot: {kernelArgs: a, container: {image: k, kernelPath: /k, initrdPath: /i}}}\n  devices:", ""},
		"arguments without a kernel":       {kernel, "  firmware: {kernelBoot: {kernelArgs: a}}\n  devices:", "spec.domain.firmware.kernelBoot.kernelArgs: Invalid value: \"a\": kernel arguments cannot be provided without an external kernel"},
		"a kernel from nowhere":            {kernel, "  firmware: {kernelBoot: {container: {kernelPath: /k}}}\n  devices:", "spec.domain.firmware.kernelBoot.container.image: Required value: spec.domain.firmware.kernelBoot.container must be defined with an image"},
		"a container without a kernel":     {kernel, "  firmware: {kernelBoot: {container: {image: k}}}\n  devices:", "spec.domain.firmware.kernelBoot.container: Required value: spec.domain.firmware.kernelBoot.container must be defined with at least one"},
		"options of DHCP":                  {nic, "masquerade: {}, dhcpOptions: {bootFileName: b, tftpServerName: t, ntpServers: [10.0.0.7], privateOptions: [{option: 224, value: v}]}", ""},
		"a time server by its name":        {nic, "masquerade: {}, dhcpOptions: {ntpServers: [pool.example.com]}", "spec.domain.devices.interfaces[0].dhcpOptions.ntpServers[0]: Invalid value: \"pool.example.com\": NTP servers must be a list of valid IPv4 addresses."},
		"an option that is not private":    {nic, "masquerade: {}, dhcpOptions: {privateOptions: [{option: 3, value: v}]}", "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].option: Invalid value: 3: provided DHCPPrivateOptions are out of range"},
		"an option twice":                  {nic, "masquerade: {}, dhcpOptions: {privateOptions: [{option: 224, value: v}, {option: 224, value: w}]}", "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[1].option: Duplicate value"},
		"an option without a value":        {nic, "masquerade: {}, dhcpOptions: {privateOptions: [{option: 224}]}", "spec.domain.devices.interfaces[0].dhcpOptions.privateOptions[0].value: Required value"},
		"a boot file of great length":      {nic, "masquerade: {}, dhcpOptions: {bootFileName: " + strings.Repeat("b", 256) + "}", "spec.domain.devices.interfaces[0].dhcpOptions.bootFileName: Too long"},
		"a volume for dumps":               {"- {name: raw, p", "- {name: dump, memoryDump: {claimName: dump, hotpluggable: true}}\n- {name: raw, p", ""},
		"dumps to a volume that stays":     {"- {name: raw, p", "- {name: dump, memoryDump: {claimName: dump}}\n- {name: raw, p", "spec.volumes[1].memoryDump.hotpluggable: Invalid value: false: must be true"},
		"dumps to a nameless claim":        {"- {name: raw, p", "- {name: dump, memoryDump: {hotpluggable: true}}\n- {name: raw, p", "spec.volumes[1].memoryDump.claimName: Required value"},
		"dumps to a disk":                  {"- {name: raw, persistentVolumeClaim: {claimName: raw}}", "- {name: raw, memoryDump: {claimName: raw, hotpluggable: true}}", "spec.volumes[1].memoryDump: Invalid value: \"raw\": the guest's memory is dumped to this volume; remove the disk of its name"},
		"an initrd alone":                  {kernel, "  firmware: {kernelBoot: {container: {image: k, initrdPath: /i}}}\n  devices:", "spec.domain.firmware.kernelBoot.container.kernelPath: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &virtv1.VirtualMachineInstanceSpec{}
			if err := yaml.UnmarshalStrict([]byte(strings.Replace(plain, c.old, c.replacement, 1)), spec); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, err := range Validate(spec, field.NewPath("spec")) {
				got = append(got, err.Error())
			}
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
				t.Errorf("refused for %q, want %q", got, c.want)
			}
		})
	}
}
