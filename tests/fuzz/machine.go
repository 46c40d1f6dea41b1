package fuzz

import (
	"fmt"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/slipway-vm/slipway/internal/supported"
	"github.com/slipway-vm/slipway/tests/fixture/random"
)

// machine makes a VirtualMachineInstance, as JSON has it, by data. Most are what a user might
// have written: fields that belong together agree. Some are not.
func machine(schema *apiextensionsv1.JSONSchemaProps, data []byte) map[string]any {
	source := random.Bytes(data)
	careless := source.OneIn(8)
	maker := random.Maker{
		Source: source, Allowed: allowed, Values: values, Sparse: 2, MaxDepth: 12,
		Alone: func(path string) []string {
			if careless {
				return nil
			}
			return alternatives[path]
		},
	}
	properties := schema.Properties["spec"]
	spec, _ := maker.Value(&properties, "spec").(map[string]any)
	if !careless {
		agree(source, spec)
	}
	return map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "x", "namespace": "prod"},
		"spec":     spec,
	}
}

// allowed says whether Slipway acts on a field of a VirtualMachineInstance, or on one below or above it.
var (
	fields  = supported.Fields(supported.VirtualMachineInstance)
	allowed = actedOn(fields)
)

// actedOn says whether Slipway acts on a field, or on one below or above it, by the list of a kind's fields.
func actedOn(fields []supported.Field) func(path string) bool {
	return func(path string) bool {
		path = strings.ReplaceAll(path, "{}", "")
		for _, f := range fields {
			if path == f.Path || strings.HasPrefix(f.Path, path+".") || strings.HasPrefix(f.Path, path+"[") ||
				strings.HasPrefix(path, f.Path+".") || strings.HasPrefix(path, f.Path+"[") {
				return true
			}
		}
		return false
	}
}

// alternatives are the fields of objects that have just one of them.
var alternatives = map[string][]string{
	"spec.livenessProbe":                                      {"httpGet", "tcpSocket", "exec", "guestAgentPing"},
	"spec.readinessProbe":                                     {"httpGet", "tcpSocket", "exec", "guestAgentPing"},
	"spec.accessCredentials[]":                                {"sshPublicKey", "userPassword"},
	"spec.accessCredentials[].sshPublicKey.source":            {"secret"},
	"spec.accessCredentials[].userPassword.source":            {"secret"},
	"spec.accessCredentials[].sshPublicKey.propagationMethod": {"qemuGuestAgent", "noCloud"},
	"spec.accessCredentials[].userPassword.propagationMethod": {"qemuGuestAgent"},
	"spec.domain.devices.disks[]":                             {"disk", "cdrom", "lun"},
	"spec.domain.devices.interfaces[]":                        {"masquerade", "bridge"},
	"spec.domain.firmware.bootloader":                         {"bios", "efi"},
	"spec.domain.clock":                                       {"utc", "timezone"},
	"spec.networks[]":                                         {"pod", "multus"},
	"spec.volumes[].sysprep":                                  {"configMap", "secret"},
	"spec.volumes[]": {
		"containerDisk", "dataVolume", "persistentVolumeClaim", "emptyDisk", "cloudInitNoCloud", "cloudInitConfigDrive", "sysprep",
		"hostDisk", "ephemeral", "configMap", "secret", "serviceAccount", "downwardAPI", "memoryDump", "downwardMetrics",
	},
}

// plausible are the values of fields whose schema says only that they are text or a quantity. A
// strange one among them is what users get wrong. Models and features of processors are ones that
// there are: which a node has shows at the start, as the docs say.
var plausible = map[string][]any{
	"spec.livenessProbe.successThreshold":                                          {int64(1), int64(0), int64(2)},
	"spec.livenessProbe.exec.command":                                              {[]any{"true"}, []any{"a", "b"}, []any{}},
	"spec.livenessProbe.httpGet.port":                                              {int64(80), "http", int64(0)},
	"spec.livenessProbe.tcpSocket.port":                                            {int64(80), "http", int64(0)},
	"spec.readinessProbe.exec.command":                                             {[]any{"true"}, []any{"a", "b"}, []any{}},
	"spec.readinessProbe.httpGet.port":                                             {int64(80), "http", int64(0)},
	"spec.readinessProbe.tcpSocket.port":                                           {int64(80), "http", int64(0)},
	"spec.accessCredentials[].sshPublicKey.source.secret.secretName":               {"keys", ""},
	"spec.accessCredentials[].userPassword.source.secret.secretName":               {"words", ""},
	"spec.accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent.users": {[]any{"root"}, []any{"a", "b"}, []any{}},
	"spec.terminationGracePeriodSeconds":                                           {int64(30), int64(0), int64(-1)},
	"spec.subdomain":                                                               {"net", "a.b"},
	"spec.nodeSelector{}":                                                          {"value", "", "no label value!"},
	"spec.hostname":                                                                {"web", "Not_A_Label"},
	"spec.domain.cpu.model":                                                        {"host-model", "host-passthrough", "Nehalem", "Skylake-Client-IBRS", "EPYC", "qemu64", "<x>"},
	"spec.domain.cpu.features[].name":                                              {"avx512f", "la57", "vmx", "pcid", "", "a b"},
	"spec.domain.cpu.features[].policy":                                            {"", "force", "require", "optional", "disable", "forbid", "often"},
	"spec.domain.cpu.sockets":                                                      {int64(1), int64(2), int64(0), int64(4), int64(710), int64(4000000000)},
	"spec.domain.cpu.cores":                                                        {int64(1), int64(2), int64(0), int64(3), int64(16), int64(355)},
	"spec.domain.cpu.threads":                                                      {int64(1), int64(2), int64(0), int64(3), int64(8), int64(65536)},
	"spec.domain.cpu.realtime.mask":                                                {"", "0", "0,^0", "0-1", "0-3, ^1", "^0", "1-0", "x", "0-4000000000"},
	"spec.domain.firmware.acpi.slicNameRef":                                        {"v0", "v1", "", "other"},
	"spec.domain.firmware.acpi.msdmNameRef":                                        {"v1", "v0", "", "../v0"},
	"spec.domain.devices.disks[].disk.pciAddress":                                  {"", "0000:00:08.0", "0000:00:01.0", "0000:07:00.0", "0000:00:1e.7", "0000:ff:00.1", "0000:00:1f.2", "0001:00:08.0", "0000:81:01.10"},
	"spec.domain.devices.interfaces[].pciAddress":                                  {"", "0000:00:09.0", "0000:08:00.0", "0000:00:02.0", "0000:00:08.3", "0000:01:00.0", "0000:02:03.0", "<"},
	"spec.domain.memory.guest":                                                     {"128Mi", "1Gi", "1537Mi", "1Mi", "64Ti", "4Pi", "8192Pi", "1000001", "128", "0", "-1Gi"},
	"spec.domain.machine.type":                                                     {"q35", "pc-q35-10.0", "pc-q35-7.2", "pc-q35-99.9", "pc", "pc-q35-a", "virt"},
	"spec.domain.firmware.uuid":                                                    {"5d307ca9-b3ef-428c-8861-06e72d69f223", "5D307CA9-B3EF-428C-8861-06E72D69F223", "00000000-0000-0000-0000-000000000000", "nope"},
	"spec.domain.clock.timezone":                                                   {"Europe/Berlin", "America/New_York", "Nowhere/At All", "UTC", "<"},
	"spec.domain.devices.disks[].cache":                                            {"none", "writethrough", "writeback", "unsafe"},
	"spec.domain.devices.disks[].io":                                               {"native", "threads", "io_uring"},
	"spec.domain.devices.disks[].errorPolicy":                                      {"stop", "ignore", "report", "enospace", "retry"},
	"spec.domain.devices.disks[].serial":                                           {"S-1", "a.b_c+d", "comma,file=/etc/passwd", "", "ß", strings.Repeat("s", 256)},
	"spec.domain.devices.disks[].lun.bus":                                          {"scsi", "sata", "virtio"},
	"spec.domain.devices.disks[].blockSize.custom":                                 nil,
	"spec.domain.devices.inputs[].bus":                                             {"usb", "virtio", "ps2", ""},
	"spec.domain.devices.inputs[].type":                                            {"tablet", "keyboard", "mouse"},
	"spec.domain.devices.inputs[].name":                                            {"in", "ta.b", "a-b", "", "a b", "<"},
	"spec.domain.devices.interfaces[].macAddress":                                  {"02:00:00:00:00:01", "02-00-00-00-00-02", "0200.0000.0003", "DE:AD:BE:EF:00:01", "01:00:00:00:00:00", "00:00:00:00:00:00", "nope"},
	"spec.domain.devices.interfaces[].ports[].port":                                {int64(80), int64(65535), int64(0), int64(65536)},
	"spec.domain.devices.interfaces[].ports[].protocol":                            {"TCP", "UDP", "", "SCTP"},
	"spec.domain.devices.interfaces[].ports[].name":                                {"http", "ssh", "Not A Name"},
	"spec.domain.devices.watchdog.name":                                            {"dog", "d.o-g_1", "", "a b", "<"},
	"spec.domain.rebootPolicy":                                                     {"Reboot", "Terminate"},
	"spec.networks[].pod.vmNetworkCIDR":                                            {"10.0.2.0/24", "192.168.66.0/30", "fd00::/64", "10.0.2.0/33", "x"},
	"spec.networks[].pod.vmIPv6NetworkCIDR":                                        {"fd10:0:2::/120", "10.0.2.0/24", "x"},
	"spec.volumes[].emptyDisk.capacity":                                            {"1Gi", "8Mi", "1", "0", "-1", "1500m"},
	"spec.volumes[].hostDisk.path":                                                 {"/data/vm.img", "/a b/ü,<x>.img", "vm.img", "/data/../vm.img", "/", ""},
	"spec.volumes[].hostDisk.capacity":                                             {"1Gi", "0", "-1", "1500m"},
	"spec.volumes[].containerDisk.imagePullPolicy":                                 {"Always", "IfNotPresent", "Never", "Sometimes"},
	"spec.volumes[].cloudInitNoCloud.userDataBase64":                               {"c2xpcHdheQ==", "!"},
	"spec.domain.features.hyperv.vendorid.vendorid":                                {"KVMKVMKVM", "123456789012", "1234567890123", "a,b", ""},
	"spec.domain.features.hyperv.spinlocks.spinlocks":                              {int64(4096), int64(8191), int64(4095), int64(0), int64(4294967295)},
	"spec.domain.devices.interfaces[].acpiIndex":                                   {int64(1), int64(100), int64(0), int64(16383), int64(16384), int64(-1)},
	"spec.domain.devices.disks[].bootOrder":                                        {int64(1), int64(2), int64(3), int64(0), int64(1000000)},
	"spec.domain.devices.interfaces[].bootOrder":                                   {int64(4), int64(1), int64(5), int64(0)},
	"spec.domain.devices.disks[].blockSize.custom.logical":                         {int64(512), int64(4096), int64(1024), int64(65536), int64(2097152), int64(513)},
	"spec.domain.devices.disks[].blockSize.custom.physical":                        {int64(4096), int64(512), int64(65536), int64(2097152), int64(0)},
	"spec.domain.devices.disks[].blockSize.custom.discardGranularity":              {int64(0), int64(4096), int64(512), int64(1), int64(513), int64(1 << 31), int64(1 << 32)},
}

// values are those listed above, else those that Slipway acts on, and one strange one.
func values(path string) []any {
	if listed := plausible[path]; len(listed) > 0 {
		return listed
	}
	for _, f := range fields {
		if f.Path == path && len(f.Only) > 0 {
			return only(f.Only)
		}
	}
	return nil
}

func only(names []string) []any {
	if names[0] == "false" || names[0] == "true" {
		return []any{names[0] == "true", names[0] != "true"}
	}
	var all []any
	for _, name := range names {
		all = append(all, name)
	}
	return append(all, all[0], "strange")
}

// agree makes names refer to each other, and gives the guest memory.
func agree(source *random.Source, spec map[string]any) {
	domain := child(spec, "domain")
	devices := child(domain, "devices")
	if _, asked := child(domain, "memory")["guest"]; !asked {
		child(domain, "memory")["guest"] = "128Mi"
	}
	volumes := items(spec, "volumes")
	disks := items(devices, "disks")
	for i := range volumes {
		volumes[i]["name"] = fmt.Sprintf("v%d", i)
	}
	if len(disks) > len(volumes) {
		disks = disks[:len(volumes)]
	}
	replace(devices, "filesystems", mountable(items(devices, "filesystems"), volumes[len(disks):]))
	for i := range disks {
		disks[i]["name"] = fmt.Sprintf("v%d", i)
	}
	replace(devices, "disks", disks)
	replace(spec, "volumes", volumes)
	for i, input := range items(devices, "inputs") {
		if name, named := input["name"].(string); named && name != "" && source.Choose(4) > 0 {
			input["name"] = fmt.Sprintf("in%d", i)
		}
	}
	if source.Choose(4) > 0 {
		placed(domain)
		tables(domain, volumes)
		onPCI(disks)
	}
	replace(devices, "panicDevices", distinct(items(devices, "panicDevices"), "model"))
	interfaces, networks := items(devices, "interfaces"), items(spec, "networks")
	count := min(len(interfaces), len(networks), 1+source.Choose(2))
	interfaces, networks = interfaces[:count], networks[:count]
	for i := range interfaces {
		interfaces[i]["name"], networks[i]["name"] = fmt.Sprintf("n%d", i), fmt.Sprintf("n%d", i)
		if pod, isPod := networks[i]["pod"].(map[string]any); isPod && interfaces[i]["bridge"] != nil {
			clear(pod) // a guest on a bridge has no network of its own
		}
	}
	replace(devices, "interfaces", interfaces)
	replace(spec, "networks", networks)
}

// mountable are the filesystems that there are volumes for, the last of which become folders of each kind.
func mountable(filesystems, volumes []map[string]any) []map[string]any {
	kinds := []map[string]any{
		{"configMap": map[string]any{"name": "c"}}, {"persistentVolumeClaim": map[string]any{"claimName": "p"}},
		{"secret": map[string]any{"secretName": "s"}}, {"dataVolume": map[string]any{"name": "d"}},
	}
	count := min(len(filesystems), len(volumes))
	for i := range count {
		volume := volumes[len(volumes)-1-i]
		name := volume["name"]
		clear(volume)
		maps.Copy(volume, kinds[i%len(kinds)])
		volume["name"], filesystems[i]["name"], filesystems[i]["virtiofs"] = name, name, map[string]any{}
	}
	return filesystems[:count]
}

// placed gives a guest what its processors and memory of its own go together with.
func placed(domain map[string]any) {
	cpu, memory := child(domain, "cpu"), child(domain, "memory")
	if _, asked := cpu["realtime"]; asked {
		child(child(cpu, "numa"), "guestMappingPassthrough")
	}
	if numa, asked := cpu["numa"].(map[string]any); asked && numa["guestMappingPassthrough"] != nil {
		cpu["dedicatedCpuPlacement"] = true
		memory["hugepages"] = map[string]any{"pageSize": "2Mi"}
	}
	if cpu["isolateEmulatorThread"] == true {
		cpu["dedicatedCpuPlacement"] = true
	}
	if cpu["dedicatedCpuPlacement"] == true {
		delete(cpu, "maxSockets")
		delete(domain, "resources")
	}
	if memory["hugepages"] != nil {
		delete(memory, "maxGuest")
		memory["guest"], memory["hugepages"] = "128Mi", map[string]any{"pageSize": "2Mi"}
	}
}

// tables has the firmware's tables in the first volume, which becomes a Secret.
func tables(domain map[string]any, volumes []map[string]any) {
	firmware, isThere := domain["firmware"].(map[string]any)
	if !isThere || firmware["acpi"] == nil {
		return
	}
	if len(volumes) == 0 {
		delete(firmware, "acpi")
		return
	}
	name := volumes[0]["name"]
	clear(volumes[0])
	volumes[0]["name"], volumes[0]["secret"] = name, map[string]any{"secretName": "s"}
	firmware["acpi"] = map[string]any{"slicNameRef": name, "msdmNameRef": name}
}

// onPCI puts disks that ask for a place on the PCI bus there, each on its own.
func onPCI(disks []map[string]any) {
	taken := map[any]bool{}
	for _, disk := range disks {
		target, isDisk := disk["disk"].(map[string]any)
		if !isDisk {
			continue
		}
		if address := target["pciAddress"]; taken[address] {
			delete(target, "pciAddress")
		} else if address != nil {
			target["bus"], taken[address] = "virtio", true
		}
	}
}

// distinct are the items that are the first with their value of a field.
func distinct(list []map[string]any, name string) []map[string]any {
	seen, out := map[any]bool{}, []map[string]any(nil)
	for _, item := range list {
		if !seen[item[name]] {
			seen[item[name]] = true
			out = append(out, item)
		}
	}
	return out
}

// child returns the object at a field, which it makes where it is not.
func child(object map[string]any, name string) map[string]any {
	if found, ok := object[name].(map[string]any); ok {
		return found
	}
	made := map[string]any{}
	object[name] = made
	return made
}

func items(object map[string]any, name string) []map[string]any {
	list, _ := object[name].([]any)
	var out []map[string]any
	for _, item := range list {
		if found, ok := item.(map[string]any); ok {
			out = append(out, found)
		}
	}
	return out
}

func replace(object map[string]any, name string, list []map[string]any) {
	if len(list) == 0 {
		delete(object, name)
		return
	}
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	object[name] = out
}
