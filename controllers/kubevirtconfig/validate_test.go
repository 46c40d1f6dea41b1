package kubevirtconfig

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

func TestValidate(t *testing.T) {
	configuration := func(set string) string { return `{"configuration":{` + set + `}}` }
	developer := func(set string) string { return configuration(`"developerConfiguration":{` + set + `}`) }
	for name, c := range map[string]struct {
		spec string
		want []string // fields, each with words of what is said of it
	}{
		"nothing":                  {spec: `{}`},
		"what Go types write":      {spec: `{"certificateRotateStrategy":{},"customizeComponents":{},"configuration":{},"workloadUpdateStrategy":{}}`},
		"all that is acted on":     {spec: configuration(`"vmStateStorageClass":"fast","evictionStrategy":"None","vmRolloutStrategy":"Stage","obsoleteCPUModels":{"Conroe":true,"486":false}`)},
		"gates of nothing":         {spec: developer(`"featureGates":["GPU","HostDisk"],"disabledFeatureGates":["Root"]`)},
		"certificates":             {spec: `{"certificateRotateStrategy":{"selfSigned":{"ca":{"duration":"48h","renewBefore":"24h"},"server":{"duration":"24h"}}}}`},
		"certificates of a blink":  {spec: `{"certificateRotateStrategy":{"selfSigned":{"ca":{"duration":"1h"},"server":{"duration":"1m"}}}}`, want: []string{"spec.certificateRotateStrategy.selfSigned.server.duration: Invalid value: \"1m0s\": it is at least 10m0s"}},
		"components":               {spec: `{"customizeComponents":{"patches":[{"resourceName":"x"}],"flags":{"api":{"verbosity":"3"}}},"infra":{"nodePlacement":{"nodeSelector":{"a":"b"}}},"workloads":{"nodePlacement":{"tolerations":[{"operator":"Exists"}]}}}`},
		"how many handlers":        {spec: `{"workloads":{"replicas":2}}`, want: []string{"spec.workloads.replicas: Forbidden"}},
		"pull secrets":             {spec: `{"imagePullSecrets":[{"name":"registry"},{"name":"mirror.example.com"}]}`},
		"pull secrets of no name":  {spec: `{"imagePullSecrets":[{"name":"registry"},{"name":"registry"},{}]}`, want: []string{"spec.imagePullSecrets[1].name: Duplicate value", "spec.imagePullSecrets[2].name: Invalid value"}},
		"few requests":             {spec: configuration(`"apiConfiguration":{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5,"burst":10}}}},"handlerConfiguration":{"restClient":{}}`)},
		"requests without a burst": {spec: configuration(`"controllerConfiguration":{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5}}}}`), want: []string{"spec.configuration.controllerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst: Invalid value: 0"}},
		"the least CPU":            {spec: configuration(`"minCPUModel":"Penryn"`), want: []string{"spec.configuration.minCPUModel: Forbidden"}},
		"machines": {spec: configuration(`"machineType":"q35","emulatedMachines":["q35*","pc-i440fx*"],"cpuModel":"Nehalem","cpuRequest":"2","defaultRuntimeClass":"kata",` +
			`"architectureConfiguration":{"amd64":{"machineType":"pc-q35-9.2","emulatedMachines":["pc-q35*"]}}`)},
		"a machine of an architecture":    {spec: configuration(`"architectureConfiguration":{"amd64":{"machineType":"pc-q35-9.2","emulatedMachines":["pc-q35*"]}}`)},
		"machines of another":             {spec: configuration(`"architectureConfiguration":{"arm64":{"machineType":"virt"}}`), want: []string{"spec.configuration.architectureConfiguration.arm64.machineType: Forbidden"}},
		"a machine that there is not":     {spec: configuration(`"machineType":"pc-i440fx-9.2"`), want: []string{`spec.configuration.machineType: Invalid value: "pc-i440fx-9.2": machine type is not supported: use q35`}},
		"one of an architecture":          {spec: configuration(`"architectureConfiguration":{"amd64":{"machineType":"pc"}}`), want: []string{"spec.configuration.architectureConfiguration.amd64.machineType: Invalid value"}},
		"a pattern that is none":          {spec: configuration(`"emulatedMachines":["q35","pc-[q35"]`), want: []string{"spec.configuration.emulatedMachines[1]: Invalid value: \"pc-[q35\": it is no pattern"}},
		"machines without the default":    {spec: configuration(`"emulatedMachines":["pc-q35*"]`), want: []string{"spec.configuration.emulatedMachines: Invalid value: [\"pc-q35*\"]: virtual machines that name no machine type have q35"}},
		"the same of an architecture":     {spec: configuration(`"machineType":"pc-q35-9.2","architectureConfiguration":{"amd64":{"emulatedMachines":["q35"]}}`), want: []string{"architectureConfiguration.amd64.emulatedMachines: Invalid value"}},
		"no machine":                      {spec: configuration(`"emulatedMachines":[]`), want: []string{"spec.configuration.emulatedMachines: Invalid value"}},
		"a model of no such name":         {spec: configuration(`"cpuModel":"a b"`), want: []string{"spec.configuration.cpuModel: Invalid value"}},
		"a request of nothing":            {spec: configuration(`"cpuRequest":"0"`), want: []string{"spec.configuration.cpuRequest: Invalid value: \"0\": write how much"}},
		"a runtime class of no such name": {spec: configuration(`"defaultRuntimeClass":"Kata!"`), want: []string{"spec.configuration.defaultRuntimeClass: Invalid value"}},
		"a CPU of no such name":           {spec: configuration(`"obsoleteCPUModels":{"a b":true}`), want: []string{"spec.configuration.obsoleteCPUModels[a b]: Invalid value"}},
		"a class of no such name":         {spec: configuration(`"vmStateStorageClass":"Fast!"`), want: []string{"spec.configuration.vmStateStorageClass: Invalid value"}},
		"guests that grow to nothing":     {spec: configuration(`"liveUpdateConfiguration":{"maxGuest":"0"}`), want: []string{"spec.configuration.liveUpdateConfiguration.maxGuest: Invalid value"}},
		"a gate on and off":               {spec: developer(`"featureGates":["HostDisk"],"disabledFeatureGates":["VSOCK","HostDisk"]`), want: []string{"disabledFeatureGates[1]: Invalid value: \"HostDisk\": featureGates has it"}},
		"a negative ratio":                {spec: developer(`"cpuAllocationRatio":-1`), want: []string{"cpuAllocationRatio: Invalid value: -1"}},
		"disks that are less":             {spec: developer(`"pvcTolerateLessSpaceUpToPercent":25,"minimumReservePVCBytes":1073741824`)},
		"disks of nothing":                {spec: developer(`"pvcTolerateLessSpaceUpToPercent":100`), want: []string{"spec.configuration.developerConfiguration.pvcTolerateLessSpaceUpToPercent: Invalid value: 100: it is from 1 to 99"}},
		"disks that are more":             {spec: developer(`"pvcTolerateLessSpaceUpToPercent":-1`), want: []string{"pvcTolerateLessSpaceUpToPercent: Invalid value: -1"}},
		"a reserve of less than nothing":  {spec: developer(`"minimumReservePVCBytes":-1`), want: []string{"spec.configuration: Invalid value"}},
		"the newest TLS":                  {spec: `{"configuration":{"tlsConfiguration":{"minTLSVersion":"VersionTLS13"}}}`},
		"ciphers of no version":           {spec: `{"configuration":{"tlsConfiguration":{"ciphers":["TLS_AES_128_GCM_SHA256"]}}}`, want: []string{"spec.configuration.tlsConfiguration.ciphers: Forbidden: You cannot specify ciphers when spec.configuration.tlsConfiguration.minTLSVersion is empty or VersionTLS13"}},
		"two of each component":           {spec: `{"infra":{"replicas":2}}`},
		"none of each component":          {spec: `{"infra":{"replicas":0}}`, want: []string{"spec.infra.replicas: Invalid value: 0: infra replica count can't be 0"}},
		"more pods than there can be":     {spec: `{"infra":{"replicas":256}}`, want: []string{"spec.infra: Invalid value"}},
		"too much of logs":                {spec: developer(`"logVerbosity":{"virtHandler":10}`), want: []string{"logVerbosity.virtHandler: Invalid value: 10"}},
		"logs of one node":                {spec: developer(`"logVerbosity":{"nodeVerbosity":{"node1.example.com":3}}`)},
		"too much of one node":            {spec: developer(`"logVerbosity":{"nodeVerbosity":{"a":3,"b":10}}`), want: []string{"logVerbosity.nodeVerbosity[b]: Invalid value: 10: levels are 1 to 9"}},
		"nodes of launchers":              {spec: configuration(`"memBalloonStatsPeriod":0,"developerConfiguration":{"nodeSelectors":{"example.com/tier":"vms"}}`)},
		"labels that nodes have not":      {spec: developer(`"nodeSelectors":{"a b":"c"}`), want: []string{"spec.configuration.developerConfiguration.nodeSelectors: Invalid value: \"a b\""}},
		"a period without end":            {spec: configuration(`"memBalloonStatsPeriod":86401`), want: []string{"spec.configuration.memBalloonStatsPeriod: Invalid value: 86401: it is from 0"}},
		"a time of no length":             {spec: `{"workloadUpdateStrategy":{"batchEvictionInterval":"soon"}}`, want: []string{"spec.workloadUpdateStrategy: Invalid value"}},
		"two at once":                     {spec: `{"imageTag":"x","workloadUpdateStrategy":{"batchEvictionSize":0}}`, want: []string{"spec.imageTag", "spec.workloadUpdateStrategy.batchEvictionSize"}},
		"who made guests":                 {spec: configuration(`"smbios":{"manufacturer":"Example, Inc.","product":"Café","version":"2.1","sku":"EX-2","family":"Example Cloud"}`)},
		"a maker of two lines":            {spec: configuration(`"smbios":{"family":"x","manufacturer":"Example\nInc."}`), want: []string{"spec.configuration.smbios.manufacturer: Invalid value"}},
		"a family without end":            {spec: configuration(`"smbios":{"family":"` + strings.Repeat("x", 256) + `"}`), want: []string{"spec.configuration.smbios.family: Too long"}},
		"roles by hand":                   {spec: configuration(`"roleAggregationStrategy":"Manual"`)},
		"roles by hand, their gate off":   {spec: configuration(`"roleAggregationStrategy":"Manual","developerConfiguration":{"disabledFeatureGates":["OptOutRoleAggregation"]}`), want: []string{"spec.configuration.roleAggregationStrategy: Invalid value: \"Manual\": RoleAggregationStrategy cannot be set to Manual without enabling the OptOutRoleAggregation feature gate"}},
		"how guests are connected":        {spec: configuration(`"network":{"defaultNetworkInterface":"masquerade","permitBridgeInterfaceOnPodNetwork":false}`)},
		"guests on a bridge":              {spec: configuration(`"network":{"defaultNetworkInterface":"bridge"}`), want: []string{"spec.configuration.network.defaultNetworkInterface: Invalid value: \"bridge\": virtual machines that name no interface have masquerade"}},
		"guests that may be":              {spec: configuration(`"network":{"permitBridgeInterfaceOnPodNetwork":true}`)},
		"types that are written out":      {spec: configuration(`"instancetype":{"referencePolicy":"expandAll"}`)},
		"types that are forgotten":        {spec: configuration(`"instancetype":{"referencePolicy":"forget"}`), want: []string{"spec.configuration.instancetype.referencePolicy: Unsupported value"}},
		"options of all guests":           {spec: configuration(`"virtualMachineOptions":{"disableFreePageReporting":{},"disableSerialConsoleLog":{}}`)},
		"an option of no meaning":         {spec: configuration(`"virtualMachineOptions":{"disableSound":{}}`), want: []string{"spec.configuration.virtualMachineOptions.disableSound: Forbidden"}},
		"how launchers are made": {spec: configuration(`"additionalGuestMemoryOverheadRatio":"1.5","autoCPULimitNamespaceLabelSelector":{"matchLabels":{"limit":"yes"}},` +
			`"seccompConfiguration":{"virtualMachineInstanceProfile":{"customProfile":{"localhostProfile":"vms/launcher.json"}}}`)},
		"the runtime's profile":     {spec: configuration(`"seccompConfiguration":{"virtualMachineInstanceProfile":{"customProfile":{"runtimeDefaultProfile":true}}}`)},
		"two profiles":              {spec: configuration(`"seccompConfiguration":{"virtualMachineInstanceProfile":{"customProfile":{"runtimeDefaultProfile":true,"localhostProfile":"a"}}}`), want: []string{"customProfile.runtimeDefaultProfile: Invalid value: true"}},
		"no profile":                {spec: configuration(`"seccompConfiguration":{"virtualMachineInstanceProfile":{}}`), want: []string{"spec.configuration.seccompConfiguration.virtualMachineInstanceProfile.customProfile: Required"}},
		"a profile of anywhere":     {spec: configuration(`"seccompConfiguration":{"virtualMachineInstanceProfile":{"customProfile":{"localhostProfile":"a/../../b"}}}`), want: []string{"customProfile.localhostProfile: Invalid value"}},
		"less than the overhead":    {spec: configuration(`"additionalGuestMemoryOverheadRatio":"0.9"`), want: []string{`spec.configuration.additionalGuestMemoryOverheadRatio: Invalid value: "0.9": it is a number from 1`}},
		"an overhead without end":   {spec: configuration(`"additionalGuestMemoryOverheadRatio":"Inf"`), want: []string{"additionalGuestMemoryOverheadRatio: Invalid value"}},
		"an overhead of no number":  {spec: configuration(`"additionalGuestMemoryOverheadRatio":"NaN"`), want: []string{"additionalGuestMemoryOverheadRatio: Invalid value"}},
		"a selector of no operator": {spec: configuration(`"autoCPULimitNamespaceLabelSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}`), want: []string{"spec.configuration.autoCPULimitNamespaceLabelSelector.matchExpressions[0].operator: Invalid value"}},
		"few on a node":             {spec: configuration(`"virtualMachineInstancesPerNode":10`)},
		"none on a node":            {spec: configuration(`"virtualMachineInstancesPerNode":0`), want: []string{"spec.configuration.virtualMachineInstancesPerNode: Invalid value: 0: it is from 1 to 10000"}},
		"a part of no meaning":      {spec: configuration(`"smbios":{"asset":"x"}`), want: []string{"spec.configuration.smbios.asset: Forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			if err := json.Unmarshal([]byte(`{"spec":`+c.spec+`}`), &object); err != nil {
				t.Fatal(err)
			}
			before, _ := json.Marshal(object)
			errs := Validate(object)
			if after, _ := json.Marshal(object); string(before) != string(after) {
				t.Errorf("the object was changed to %s", after)
			}
			if len(errs) != len(c.want) {
				t.Fatalf("got %v, want %q", errs, c.want)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("got %v, want %q", err, c.want[i])
				}
			}
		})
	}
}

func TestGatesOfNothingAreWarnedOf(t *testing.T) {
	kubevirt := &virtv1.KubeVirt{}
	if got := Warnings(kubevirt); len(got) > 0 {
		t.Errorf("an object that says nothing: %q", got)
	}
	kubevirt.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{FeatureGates: []string{"HostDisk", "GPU"}}
	got := Warnings(kubevirt)
	if len(got) != 1 || !slices.ContainsFunc(got, func(w string) bool {
		return strings.Contains(w, "featureGates[1]") && strings.Contains(w, "gate GPU") && strings.Contains(w, "HostDisk, VSOCK")
	}) {
		t.Errorf("got %q", got)
	}
}
