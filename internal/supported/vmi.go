package supported

// kvmOnly is the note of what hardware virtualization alone has.
const kvmOnly = "Left out under software emulation, which the condition SoftwareEmulation tells."

// hotpluggable is the note of volumes that come and go.
const hotpluggable = "The volume and its disk, on the bus scsi or virtio, can be added to and removed from a running machine; so can the disc in a CD-ROM drive."

// vmiFields are those of a VirtualMachineInstance's spec.
var vmiFields = join(podFields, probeFields, accessFields, cpuFields, firmwareFields, featureFields, clockFields, deviceFields, diskFields, interfaceFields, volumeFields)

// podFields decide where and how the launcher pod runs.
var podFields = join(
	each("", "priorityClassName nodeSelector affinity schedulerName tolerations topologySpreadConstraints hostname subdomain dnsPolicy dnsConfig"),
	[]Field{
		{Path: "serviceAccountName", Note: "Of the launcher pod; its token is mounted only for a serviceAccount volume."},
		{Path: "terminationGracePeriodSeconds", Note: "30 when left out. The guest has so long to power off."},
		{Path: "evictionStrategy", Only: []string{"None", "LiveMigrate", "LiveMigrateIfPossible", "External"}, Note: "There is no live migration yet: " +
			"condition LiveMigratable is False. LiveMigrate: evictions are refused until the machine is stopped; External: they are refused, and status.evacuationNodeName tells who is to move it; " +
			"else the guest is shut down within its grace period, and a VirtualMachine starts it elsewhere. When left out: spec.configuration.evictionStrategy of the KubeVirt object, or else None."},
		{Path: "startStrategy", Only: []string{"Paused"}, Note: "The guest is loaded and stands still until it is unpaused."},
		{Path: "architecture", Only: []string{"amd64"}},
	},
)

// probeNote is what a handler of the kubelet's own needs.
const probeNote = "The kubelet asks at the pod's address, and masquerading passes it on to the guest; where the interface lists ports, the probe's is one of them."

// probeFields say when the guest is well.
var probeFields = func() []Field {
	var fields []Field
	for _, probe := range []string{"readinessProbe.", "livenessProbe."} {
		fields = append(fields, each(probe, "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold")...)
		fields = append(fields,
			Field{Path: probe + "httpGet", Note: probeNote},
			Field{Path: probe + "tcpSocket", Note: "As httpGet."},
			Field{Path: probe + "exec.command", Note: "Run in the guest by its agent. One that outlives timeoutSeconds goes on there, and no other is started meanwhile."},
			Field{Path: probe + "guestAgentPing"},
		)
	}
	return fields
}()

// accessFields let people into the guest.
var accessFields = []Field{
	{Path: "accessCredentials[].sshPublicKey.source.secret.secretName", Note: "Every line of every value is a key."},
	{Path: "accessCredentials[].sshPublicKey.propagationMethod.noCloud", Note: "Into the metadata of the cloudInitNoCloud volume; a change of the Secret arrives at the next start."},
	{Path: "accessCredentials[].sshPublicKey.propagationMethod.configDrive", Note: "As noCloud, into that of the cloudInitConfigDrive volume."},
	{Path: "accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent.users",
		Note: "The users' authorized_keys hold these keys and no others; a change of the Secret arrives while the guest runs."},
	{Path: "accessCredentials[].userPassword.source.secret.secretName", Note: "Its keys are the users' names, its values their passwords."},
	{Path: "accessCredentials[].userPassword.propagationMethod.qemuGuestAgent", Note: "A change of the Secret arrives while the guest runs."},
}

var cpuFields = join(
	each("domain.cpu.", "cores sockets threads features[].name features[].policy isolateEmulatorThread"),
	[]Field{
		{Path: "domain.cpu.maxSockets", Note: "To how many sockets a running VirtualMachine's guest can grow. When left out: spec.configuration.liveUpdateConfiguration " +
			"of the KubeVirt object, or else four times sockets, but none more where useEmulation is set, for emulation pays for them."},
		{Path: "domain.cpu.model", Note: "The host's own when left out. No node is chosen by it: a named model that the node lacks fails at the start."},
		{Path: "domain.cpu.dedicatedCpuPlacement", Note: "On nodes with the label cpumanager=true; see [processors and memory of its own](virtualmachineinstance.md#processors-and-memory-of-its-own)."},
		{Path: "domain.cpu.numa.guestMappingPassthrough", Note: "The pod's container has the capability SYS_NICE on its list, which the namespace must allow."},
		{Path: "domain.cpu.realtime.mask", Note: "Such as 0-3,^1; every processor when left out. On nodes with the label kubevirt.io/realtime=true."},
		{Path: "domain.memory.hugepages.pageSize", Only: []string{"2Mi", "1Gi"}},
		{Path: "domain.memory.guest", Note: "The memory request, or else its limit, when left out."},
		{Path: "domain.memory.maxGuest", Note: "To how much memory a running VirtualMachine's guest can grow, by a virtio-mem device. When left out: " +
			"spec.configuration.liveUpdateConfiguration.maxGuest of the KubeVirt object, or else none."},
		{Path: "domain.memory.reservedOverhead.addedOverhead", Note: "Added to the overhead of the virtual machine."},
		{Path: "domain.resources.overcommitGuestOverhead", Note: "The overhead is in a memory limit only, not in the request; not with dedicatedCpuPlacement or hugepages."},
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
		{Path: "domain.firmware.bootloader.efi.persistent", Note: "UEFI's variables stay over restarts, on a claim of the VM's own; see [state that stays](virtualmachineinstance.md#state-that-stays)."},
	},
	[]Field{
		{Path: "domain.firmware.acpi.slicNameRef", Note: "A volume that is a Secret with the key slic.bin. It is no disk of the guest unless one is called like it."},
		{Path: "domain.firmware.acpi.msdmNameRef", Note: "As slicNameRef, with the key msdm.bin."},
	},
	each("domain.firmware.kernelBoot.", "kernelArgs container.image container.imagePullSecret container.imagePullPolicy container.kernelPath container.initrdPath"),
	each("domain.chassis.", "manufacturer version serial asset sku"),
)

var featureFields = join(
	each("domain.features.", "acpi.enabled apic.enabled apic.endOfInterrupt smm.enabled"),
	[]Field{
		{Path: "domain.features.kvm.hidden", Note: kvmOnly},
		{Path: "domain.features.pvspinlock.enabled", Note: kvmOnly},
		{Path: "domain.features.hyperv", Note: kvmOnly + " A feature that another one needs, and of which nothing is said, is turned on: synic and vpindex for synictimer, " +
			"vpindex for synic, tlbflush and ipi, vapic and the CPU feature vmx for evmcs."},
		{Path: "domain.features.hypervPassthrough.enabled", Note: "All of hyperv's features that the node's KVM has. " + kvmOnly},
	},
)

var clockFields = join(
	each("domain.clock.", "utc.offsetSeconds timezone"),
	each("domain.clock.timer.", "hpet.present pit.present rtc.present"),
	[]Field{
		{Path: "domain.clock.timer.hpet.tickPolicy", Only: []string{"delay", "catchup", "merge", "discard"}},
		{Path: "domain.clock.timer.pit.tickPolicy", Only: []string{"delay", "catchup", "discard"}},
		{Path: "domain.clock.timer.rtc.tickPolicy", Only: []string{"delay", "catchup"}},
		{Path: "domain.clock.timer.rtc.track", Only: []string{"guest", "wall"}},
		{Path: "domain.clock.timer.kvm.present", Note: kvmOnly},
		{Path: "domain.clock.timer.hyperv.present", Note: kvmOnly},
	},
)

var deviceFields = join(
	each("domain.devices.", "useVirtioTransitional autoattachPodInterface autoattachGraphicsDevice autoattachSerialConsole logSerialConsole "+
		"autoattachMemBalloon autoattachInputDevice rng blockMultiQueue watchdog.name inputs[].bus inputs[].type inputs[].name"),
	[]Field{
		{Path: "domain.devices.panicDevices[].model", Only: []string{"isa", "hyperv", "pvpanic"}, Note: "isa when left out. A panic of the guest ends the VMI as Failed with the reason and event GuestPanicked. " +
			"hyperv is left out under software emulation."},
		{Path: "domain.devices.watchdog.i6300esb.action", Only: []string{"reset", "poweroff", "shutdown"}, Note: "The watchdog is an i6300esb, and its action reset, when left out."},
		{Path: "domain.devices.video.type", Only: []string{"vga", "virtio", "bochs", "cirrus", "ramfb"}, Note: "vga when left out, bochs with UEFI."},
		{Path: "domain.devices.disableHotplug", Note: "Without it a machine has a SCSI controller and four PCI ports to spare, for disks that are added while it runs."},
		{Path: "domain.devices.networkInterfaceMultiqueue", Note: "A queue pair for each virtual CPU on virtio interfaces."},
		{Path: "domain.devices.clientPassthrough", Note: "Four slots for USB devices of `virtctl usbredir`."},
		{Path: "domain.devices.autoattachVSOCK", Note: "Behind the feature gate VSOCK; see [sockets to the node](virtualmachineinstance.md#sockets-to-the-node)."},
		{Path: "domain.devices.downwardMetrics", Note: "Behind the feature gate DownwardMetrics; see [metrics in the guest](virtualmachineinstance.md#metrics-in-the-guest)."},
		{Path: "domain.ioThreadsPolicy", Only: []string{"shared", "auto", "supplementalPool"}},
		{Path: "domain.ioThreads.supplementalPoolThreadCount", Note: "Each virtio disk without a thread of its own has all these threads, and at least as many queues."},
		{Path: "domain.devices.tpm", Note: "An emulated TPM 2.0. With persistent, what the guest leaves in it stays over restarts, on a claim of the VM's own."},
		{Path: "domain.devices.filesystems[].name", Note: "That of a volume, by which the guest mounts it, at most 36 bytes; see [folders in the guest](virtualmachineinstance.md#folders-in-the-guest)."},
		{Path: "domain.devices.filesystems[].virtiofs", Note: "Of a configMap, secret, serviceAccount or downwardAPI, which are only read, or of a persistentVolumeClaim or dataVolume with volumeMode Filesystem."},
		{Path: "domain.devices.sound.name"},
		{Path: "domain.devices.sound.model", Only: []string{"ich9", "ac97"}, Note: "ich9 when left out. What it plays is not heard anywhere."},
	},
)

var diskFields = join(
	each("domain.devices.disks[].", "name disk.readonly cdrom.readonly bootOrder serial dedicatedIOThread cache "+
		"blockSize.custom.logical blockSize.custom.physical blockSize.custom.discardGranularity shareable errorPolicy"),
	[]Field{
		{Path: "domain.devices.disks[].blockSize.matchVolume.enabled", Note: "The blocks of the claim's device; on a file system, its blocks, of which the guest reads and writes at most 4096 bytes at once."},
		{Path: "domain.devices.disks[].io", Only: []string{"native", "threads"}, Note: "native goes past the node's cache: cache is none when left out, and can be nothing else."},
		{Path: "domain.devices.disks[].tag", Note: "As that of an interface, with the disk's serial."},
		{Path: "domain.devices.disks[].cdrom.tray", Only: []string{"open", "closed"}},
		{Path: "domain.devices.disks[].disk.pciAddress", Note: "Such as 0000:00:08.0; with the bus virtio. Slots 01 to 1e of bus 00, or, but for old devices, slot 00 of another bus up to 3f."},
		{Path: "domain.devices.disks[].disk.bus", Only: []string{"virtio", "sata", "scsi", "usb"}, Note: "sata when left out; virtio is several times as fast."},
		{Path: "domain.devices.disks[].lun.bus", Only: []string{"scsi"}, Note: "scsi when left out. The claim has volumeMode Block and is a SCSI device of the node; the guest's commands go to that."},
		{Path: "domain.devices.disks[].lun.readonly"},
		{Path: "domain.devices.disks[].cdrom.bus", Only: []string{"sata", "scsi", "usb"}, Note: "sata when left out."},
	},
)

var interfaceFields = join(
	each("domain.devices.interfaces[].", "name macAddress bootOrder acpiIndex ports[].name ports[].protocol ports[].port"),
	[]Field{
		{Path: "domain.devices.interfaces[].masquerade", Note: "The guest is 10.0.2.2 behind the pod's address, and what a VMI without interfaces gets (the field's default is a bridge)."},
		{Path: "domain.devices.interfaces[].bridge", Note: "The guest has the pod's IPv4 address, by DHCP, and its hardware address unless macAddress names another. What the guest listens at is reached, whatever ports lists."},
		{Path: "domain.devices.interfaces[].pciAddress", Note: "As that of a disk."},
		{Path: "domain.devices.interfaces[].model", Only: []string{"virtio", "e1000", "e1000e", "rtl8139", "ne2k_pci", "pcnet"}},
		{Path: "domain.devices.interfaces[].tag", Note: "Told to the guest on its cloudInitConfigDrive, with the interface's place on the PCI bus."},
		{Path: "domain.devices.interfaces[].state", Only: []string{"up", "down"}},
		{Path: "domain.devices.interfaces[].dhcpOptions", Note: "Boot file (67), TFTP server (66), time servers (42) and private options (224 to 254) of the lease that the guest gets."},
		{Path: "networks[].name"},
		{Path: "networks[].pod.vmNetworkCIDR", Note: "With masquerade."},
		{Path: "networks[].pod.vmIPv6NetworkCIDR", Note: "With masquerade."},
	},
)

var volumeFields = join(
	each("volumes[].", "name dataVolume.name persistentVolumeClaim.claimName persistentVolumeClaim.readOnly emptyDisk.capacity"),
	[]Field{
		{Path: "volumes[].dataVolume.hotpluggable", Note: hotpluggable},
		{Path: "volumes[].persistentVolumeClaim.hotpluggable", Note: hotpluggable},
	},
	each("volumes[].containerDisk.", "image imagePullSecret path imagePullPolicy"),
	each("volumes[].cloudInitNoCloud.", "secretRef userDataBase64 userData networkDataSecretRef networkDataBase64 networkData"),
	each("volumes[].cloudInitConfigDrive.", "secretRef userDataBase64 userData networkDataSecretRef networkDataBase64 networkData"),
	each("volumes[].configMap.", "name optional volumeLabel"),
	each("volumes[].secret.", "secretName optional volumeLabel"),
	[]Field{
		{Path: "volumes[].downwardAPI.fields", Note: "Of the launcher pod, which has the labels and annotations of the VirtualMachineInstance; of its container compute."},
		{Path: "volumes[].downwardAPI.volumeLabel"},
		{Path: "volumes[].serviceAccount.serviceAccountName", Note: "The launcher pod is of this account, and its token is on the disc as the guest starts."},
		{Path: "volumes[].ephemeral.persistentVolumeClaim.claimName", Note: "Only read, by any number of guests; what a guest writes ends with its run."},
		{Path: "volumes[].ephemeral.persistentVolumeClaim.readOnly"},
		{Path: "volumes[].hostDisk.path", Note: "A file of the node, behind the feature gate HostDisk; see [files of the node](virtualmachineinstance.md#files-of-the-node)."},
		{Path: "volumes[].hostDisk.type", Only: []string{"Disk", "DiskOrCreate"}, Note: "With Disk the file is there; with DiskOrCreate it is made where it is not."},
		{Path: "volumes[].hostDisk.capacity", Note: "Of a file that is made, sparse; up to a tenth less, or what the KubeVirt object says, where the file system has not so much."},
		{Path: "volumes[].hostDisk.shared", Note: "Other nodes have the path too: without a cache of the disk's own, nothing of it stays in the node's page cache. The disk still has one guest."},
		{Path: "volumes[].downwardMetrics", Note: "As the device of that name, as a disk that is only read, on the bus virtio."},
		{Path: "volumes[].memoryDump.claimName", Note: "The guest's memory is dumped to the claim once, when it is there; see [memory dump](virtualmachine.md#memory-dump). " +
			"In a VirtualMachine it says only that a dump was asked for."},
		{Path: "volumes[].memoryDump.readOnly", Only: []string{"false"}},
		{Path: "volumes[].memoryDump.hotpluggable", Only: []string{"true"}},
		{Path: "volumes[].sysprep.configMap", Note: "All its keys are on the disc, labelled unattendCD; one is autounattend.xml or unattend.xml, in any case."},
		{Path: "volumes[].sysprep.secret", Note: "As configMap."},
	},
)
