package supported

// kubeVirtFields are those of the KubeVirt object's spec.
var kubeVirtFields = join(
	[]Field{
		{Path: "imagePullPolicy", Only: []string{"Always", "IfNotPresent", "Never"}, Note: "HyperConverged writes it, and sets it back."},
		{Path: "uninstallStrategy", Only: []string{"BlockUninstallIfWorkloadsExist"}, Note: "The object cannot be deleted while virtual machines exist."},
		{Path: "workloadUpdateStrategy.workloadUpdateMethods", Note: "Evict, or none: virtual machines get a new launcher at their next start."},
		{Path: "workloadUpdateStrategy.batchEvictionSize", Note: "10 when left out."},
		{Path: "workloadUpdateStrategy.batchEvictionInterval", Note: "1m0s when left out."},
		{Path: "configuration.imagePullPolicy", Only: []string{"Always", "IfNotPresent", "Never"}, Note: "Of launcher pods."},
		{Path: "configuration.vmStateStorageClass", Note: "Of what virtual machines keep beside their disks."},
		{Path: "configuration.evictionStrategy", Only: []string{"None", "LiveMigrate", "LiveMigrateIfPossible", "External"}, Note: "Of virtual machines that name none."},
		{Path: "configuration.obsoleteCPUModels", Note: "Models that nodes are not to be labelled with; when left out, those that are obsolete in the field."},
		{Path: "configuration.smbios.manufacturer", Note: "KubeVirt when left out."},
		{Path: "configuration.smbios.product", Note: "None when left out."},
		{Path: "configuration.smbios.version"},
		{Path: "configuration.smbios.sku"},
		{Path: "configuration.smbios.family", Note: "KubeVirt when left out."},
		{Path: "configuration.virtualMachineOptions.disableFreePageReporting", Note: "`{}`: guests do not hand back to the node what they have freed of their memory."},
		{Path: "configuration.virtualMachineOptions.disableSerialConsoleLog", Note: "`{}`: no log of the serial console, but of virtual machines with `logSerialConsole: true`."},
		{Path: "configuration.vmRolloutStrategy", Only: []string{"Stage", "LiveUpdate"}, Note: "LiveUpdate when left out."},
		{Path: "configuration.commonInstancetypesDeployment.enabled", Note: "HyperConverged writes it, and sets it back."},
		{Path: "configuration.liveUpdateConfiguration.maxCpuSockets"},
		{Path: "configuration.liveUpdateConfiguration.maxHotplugRatio", Note: "4 when left out; 1 with useEmulation."},
		{Path: "configuration.liveUpdateConfiguration.maxGuest"},
	},
	[]Field{
		{Path: "configuration.developerConfiguration.useEmulation", Note: "HyperConverged writes it, and sets it back; its annotation sets it."},
		{Path: "configuration.developerConfiguration.featureGates", Note: "Those on which nothing acts are warned of."},
		{Path: "configuration.developerConfiguration.disabledFeatureGates"},
		{Path: "configuration.developerConfiguration.cpuAllocationRatio", Note: "10 when left out."},
		{Path: "configuration.developerConfiguration.memoryOvercommit", Note: "100 when left out."},
	},
	each("configuration.developerConfiguration.logVerbosity.", "virtAPI virtController virtHandler virtLauncher virtOperator"),
)
