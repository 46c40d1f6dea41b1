package supported

// cronFields are those of a DataImportCron's spec, but for its template's spec.
var cronFields = []Field{
	{Path: "schedule", Note: "Five fields as of cron, in UTC, or one of @hourly, @daily, @weekly, @monthly, @yearly and @every 2h; not more often than once a minute. Empty for never."},
	{Path: "managedDataSource", Note: "Made when it does not exist; one that nobody's DataImportCron made is left alone."},
	{Path: "garbageCollect", Only: []string{"Outdated", "Never"}},
	{Path: "importsToKeep", Note: "3 when left out. The last one always stays."},
	{Path: "serviceAccountName", Note: "default when left out. With its rights a claim of another namespace is cloned; nothing else is done with it."},
	{Path: "retentionPolicy", Only: []string{"All", "None"}, Note: "All when left out."},
	{Path: "template.metadata", Note: "Labels and annotations of the DataVolumes; their names are the DataSource's with a digest."},
	{Path: "template.status", Note: "Exists for old clients and means nothing."},
	{Path: "template.apiVersion", Note: "Exists for old clients and means nothing."},
	{Path: "template.kind", Note: "Exists for old clients and means nothing."},
}

// transferFields are those of an ObjectTransfer's spec.
var transferFields = []Field{
	{Path: "source.apiVersion", Only: []string{"cdi.kubevirt.io/v1beta1", "v1"}, Note: "That of the kind."},
	{Path: "source.kind", Only: []string{"DataVolume", "PersistentVolumeClaim"}},
	{Path: "source.namespace"},
	{Path: "source.name"},
	{Path: "source.requiredAnnotations", Note: "Waited for."},
	{Path: "target.namespace", Note: "The source's when left out."},
	{Path: "target.name", Note: "The source's when left out."},
}

// cdiFields are those of the CDI object's spec.
var cdiFields = []Field{
	{Path: "imagePullPolicy", Only: []string{"Always", "IfNotPresent", "Never"}, Note: "Of Slipway's own image, in pods that fill disks."},
	{Path: "workload", Note: "Where pods run that fill disks, or look for images: beside what a volume asks for."},
	{Path: "infra.nodeSelector", Note: "HyperConverged writes it, and places the components itself."},
	{Path: "infra.affinity", Note: "Likewise."},
	{Path: "infra.tolerations", Note: "Likewise."},
	{Path: "infra.deploymentReplicas", Note: "Of virt-controller, where the KubeVirt object asks for less; 1 when left out."},
	{Path: "infra.apiServerReplicas", Note: "Of virt-api, likewise."},
	{Path: "infra.uploadProxyReplicas", Note: "Of cdi-uploadproxy."},
	{Path: "priorityClass", Note: "Of cdi-uploadproxy. What else does CDI's work does KubeVirt's, too, and has kubevirt-cluster-critical."},
	{Path: "config.imagePullSecrets", Note: "Of Slipway's own image, in pods that fill disks; they must be in the DataVolume's namespace."},
	{Path: "certConfig.ca.duration", Note: "168h when left out; at least 10m."},
	{Path: "certConfig.ca.renewBefore", Note: "Half of the duration when left out."},
	{Path: "certConfig.server.duration", Note: "Of cdi-uploadproxy; 24h when left out."},
	{Path: "certConfig.server.renewBefore", Note: "Half of the duration when left out."},
	{Path: "certConfig.client.duration", Note: "By which upload servers know cdi-uploadproxy; 24h when left out."},
	{Path: "certConfig.client.renewBefore", Note: "Half of the duration when left out."},
	{Path: "uninstallStrategy", Only: []string{"BlockUninstallIfWorkloadsExist"}},
	{Path: "cloneStrategyOverride", Note: "Of all classes, in the place of what their StorageProfiles say."},
	{Path: "config.featureGates[]", Only: []string{"HonorWaitForFirstConsumer", "DataVolumeClaimAdoption"}, Note: "The first is always honoured; with the second DataVolumes take over claims of their name that are there."},
	{Path: "config.dataVolumeTTLSeconds", Note: "Deprecated in CDI. After how many seconds DataVolumes go that have succeeded, and leave their claims; negative, or left out, for never."},
	{Path: "config.webhookPvcRendering", Only: []string{"Enabled", "Disabled"}, Note: "Enabled when left out: claims with the label cdi.kubevirt.io/applyStorageProfile: \"true\" are completed from their class's StorageProfile."},
	{Path: "config.uploadProxyURLOverride"},
	{Path: "config.scratchSpaceStorageClass", Note: "For clients that read it in the CDIConfig; what Slipway fills needs no scratch space."},
	{Path: "config.podResourceRequirements", Note: "Of importer pods, in the place of the defaults; claims are refused."},
	{Path: "config.filesystemOverhead.global", Note: "0.06 when left out."},
	{Path: "config.filesystemOverhead.storageClass", Note: "Of each class, in the place of the one for all; 0 for node storage, whose volumes are directories."},
	{Path: "config.logVerbosity", Note: "0 to 9. Of cdi-uploadproxy, of what virt-controller does of CDI's work, and of pods that fill disks. HyperConverged writes it where its own says something."},
	{Path: "config.preallocation", Note: "Of DataVolumes that say nothing of it."},
	{Path: "config.insecureRegistries", Note: "As host or host:port. Nobody checks their certificates."},
	{Path: "config.tlsSecurityProfile.type", Only: []string{"Old", "Intermediate", "Modern", "Custom"}, Note: "Of cdi-uploadproxy and upload servers. HyperConverged writes it where its own says something."},
	{Path: "config.tlsSecurityProfile.old"},
	{Path: "config.tlsSecurityProfile.intermediate"},
	{Path: "config.tlsSecurityProfile.modern"},
	{Path: "config.tlsSecurityProfile.custom.minTLSVersion"},
	{Path: "config.tlsSecurityProfile.custom.ciphers", Note: "OpenSSL's names; none with TLS 1.3 as the least version."},
	{Path: "config.importProxy.HTTPProxy", Note: "As http://host:port or http://user:password@host:port; https where the proxy has TLS."},
	{Path: "config.importProxy.HTTPSProxy", Note: "Likewise, for https addresses and registries."},
	{Path: "config.importProxy.noProxy", Note: "Names of the cluster, .svc and .cluster.local, are always reached without a proxy."},
	{Path: "config.importProxy.trustedCAProxy", Note: "A ConfigMap in Slipway's namespace, with PEM certificates under any keys."},
}
