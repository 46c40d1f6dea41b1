package supported

// kvmOnly is the note of what hardware virtualization alone has.
const kvmOnly = "Left out under software emulation, which the condition SoftwareEmulation tells."

// vmiFields are those of a VirtualMachineInstance's spec.
var vmiFields = join(podFields, cpuFields, firmwareFields, featureFields, clockFields, deviceFields, diskFields, interfaceFields, volumeFields)

// podFields decide where and how the launcher pod runs.
var podFields = join(
	each("", "priorityClassName nodeSelector affinity schedulerName tolerations topologySpreadConstraints hostname subdomain dnsPolicy dnsConfig"),
	[]Field{
		{Path: "serviceAccountName", Note: "Of the launcher pod; its token is not mounted."},
		{Path: "terminationGracePeriodSeconds", Note: "30 when left out. The guest has so long to power off."},
		{Path: "evictionStrategy", Only: []string{"None", "LiveMigrate", "LiveMigrateIfPossible"}, Note: "There is no live migration yet: " +
			"condition LiveMigratable is False, and an eviction under any strategy shuts the guest down within its grace period; a VirtualMachine then starts it elsewhere."},
		{Path: "startStrategy", Only: []string{"Paused"}, Note: "The guest is loaded and stands still until it is unpaused."},
		{Path: "architecture", Only: []string{"amd64"}},
	},
)

var cpuFields = join(
	each("domain.cpu.", "cores sockets threads features[].name features[].policy"),
	[]Field{
		{Path: "domain.cpu.model", Note: "The host's own when left out. No node is chosen by it: a named model that the node lacks fails at the start."},
		{Path: "domain.memory.guest", Note: "The memory request, or else its limit, when left out."},
		{Path: "domain.resources.requests"},
		{Path: "domain.resources.limits", Note: "The overhead of the virtual machine is added to a memory limit."},
		{Path: "domain.rebootPolicy"},
	},
)

var firmwareFields = join(
	[]Field{
		{Path: "domain.machine.type", Note: "q35 when left out."},
		{Path: "domain.firmware.uuid", Note: "A VirtualMachine keeps the same from start to start when left out."},
		{Path: "domain.firmware.serial"},
		{Path: "domain.firmware.bootloader.bios.useSerial"},
		{Path: "domain.firmware.bootloader.efi.secureBoot", Note: "True when left out."},
		{Path: "domain.firmware.bootloader.efi.persistent", Only: []string{"false"}},
	},
	each("domain.chassis.", "manufacturer version serial asset sku"),
)

var featureFields = join(
	each("domain.features.", "acpi.enabled apic.enabled apic.endOfInterrupt smm.enabled"),
	[]Field{
		{Path: "domain.features.kvm.hidden", Note: kvmOnly},
		{Path: "domain.features.pvspinlock.enabled", Note: kvmOnly},
		{Path: "domain.features.hyperv", Note: kvmOnly},
	},
)

var clockFields = join(
	each("domain.clock.", "utc.offsetSeconds timezone"),
	each("domain.clock.timer.", "hpet.tickPolicy hpet.present pit.tickPolicy pit.present rtc.tickPolicy rtc.present rtc.track"),
	[]Field{
		{Path: "domain.clock.timer.kvm.present", Note: kvmOnly},
		{Path: "domain.clock.timer.hyperv.present", Note: kvmOnly},
	},
)

var deviceFields = join(
	each("domain.devices.", "useVirtioTransitional autoattachPodInterface autoattachGraphicsDevice autoattachSerialConsole logSerialConsole "+
		"autoattachMemBalloon autoattachInputDevice rng blockMultiQueue watchdog.name watchdog.i6300esb.action "+
		"inputs[].bus inputs[].type inputs[].name video.type"),
	[]Field{
		{Path: "domain.devices.panicDevices[].model", Only: []string{"isa", "hyperv", "pvpanic"}, Note: "isa when left out. A panic of the guest ends the VMI as Failed with the reason and event GuestPanicked. " +
			"hyperv is left out under software emulation."},
		{Path: "domain.devices.disableHotplug", Note: "Nothing is plugged into a running machine yet, so it always holds."},
		{Path: "domain.devices.networkInterfaceMultiqueue", Note: "A queue pair for each virtual CPU on virtio interfaces."},
		{Path: "domain.devices.autoattachVSOCK", Only: []string{"false"}},
		{Path: "domain.ioThreadsPolicy", Only: []string{"shared", "auto"}},
	},
)

var diskFields = join(
	each("domain.devices.disks[].", "name disk.readonly cdrom.readonly cdrom.tray bootOrder serial dedicatedIOThread cache io "+
		"blockSize.custom.logical blockSize.custom.physical blockSize.custom.discardGranularity shareable errorPolicy"),
	[]Field{
		{Path: "domain.devices.disks[].disk.bus", Only: []string{"virtio", "sata", "scsi", "usb"}, Note: "sata when left out; virtio is several times as fast."},
		{Path: "domain.devices.disks[].cdrom.bus", Only: []string{"sata", "scsi", "usb"}, Note: "sata when left out."},
	},
)

var interfaceFields = join(
	each("domain.devices.interfaces[].", "name macAddress bootOrder acpiIndex ports[].name ports[].protocol ports[].port"),
	[]Field{
		{Path: "domain.devices.interfaces[].masquerade", Note: "The guest is 10.0.2.2 behind the pod's address, and what a VMI without interfaces gets (the field's default is a bridge)."},
		{Path: "domain.devices.interfaces[].model", Only: []string{"virtio", "e1000", "e1000e", "rtl8139", "ne2k_pci", "pcnet"}},
		{Path: "domain.devices.interfaces[].state", Only: []string{"up", "down"}},
		{Path: "networks[].name"},
		{Path: "networks[].pod.vmNetworkCIDR"},
		{Path: "networks[].pod.vmIPv6NetworkCIDR"},
	},
)

var volumeFields = join(
	each("volumes[].", "name dataVolume.name persistentVolumeClaim.claimName persistentVolumeClaim.readOnly emptyDisk.capacity"),
	each("volumes[].containerDisk.", "image imagePullSecret path imagePullPolicy"),
	each("volumes[].cloudInitNoCloud.", "secretRef userDataBase64 userData networkDataSecretRef networkDataBase64 networkData"),
	[]Field{
		{Path: "volumes[].sysprep.configMap", Note: "All its keys are on the disc, labelled unattendCD; one is autounattend.xml or unattend.xml, in any case."},
		{Path: "volumes[].sysprep.secret", Note: "As configMap."},
	},
)
