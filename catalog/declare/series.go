package declare

import "slices"

// size is one instance type of a series.
type size struct {
	name   string
	cpus   uint32
	memory string
}

// series is a row of instance types that differ in size alone.
type series struct {
	name        string // of the series with its version: u1
	display     string
	class       string
	icon        string
	description string
	sizes       []size

	pages      []string // sizes of huge pages; of the second on, names end in its size
	dedicated  bool     // CPUs of its own, and one more for the emulator
	numa       bool     // the guest sees the node's topology
	realtime   bool
	fixedCPUs  bool // no sockets to plug CPUs into
	ioThreads  bool
	unbalanced bool // spared by the container runtime's balancing of CPUs and interrupts
	overcommit int  // per cent of the memory that is not asked for
}

// general are the sizes with a CPU for 4Gi of memory, from medium on.
var general = []size{
	{"nano", 1, "512Mi"},
	{"micro", 1, "1Gi"},
	{"small", 1, "2Gi"},
	{"medium", 1, "4Gi"},
	{"2xmedium", 2, "4Gi"},
	{"large", 2, "8Gi"},
	{"xlarge", 4, "16Gi"},
	{"2xlarge", 8, "32Gi"},
	{"4xlarge", 16, "64Gi"},
	{"8xlarge", 32, "128Gi"},
}

// generalBut are the general sizes without those named.
func generalBut(names ...string) []size {
	return slices.DeleteFunc(slices.Clone(general), func(s size) bool { return slices.Contains(names, s.name) })
}

// allSeries lists the series by name.
func allSeries() []series {
	return []series{
		{
			name: "cx1", display: "Compute Exclusive", class: "compute.exclusive", icon: "pficon-registry",
			description: "For computing: CPUs that no other VM gets, further ones for input and output, huge pages, and the node's NUMA topology. " +
				"Needs nodes with the kubelet's static CPU manager and huge pages.",
			sizes: []size{
				{"medium", 1, "2Gi"}, {"large", 2, "4Gi"}, {"xlarge", 4, "8Gi"},
				{"2xlarge", 8, "16Gi"}, {"4xlarge", 16, "32Gi"}, {"8xlarge", 32, "64Gi"},
			},
			pages: []string{"2Mi", "1Gi"}, dedicated: true, numa: true, fixedCPUs: true, ioThreads: true,
		},
		{
			name: "d1", display: "Dedicated vCPU", class: "dedicated.vcpu", icon: "pficon-server-group",
			description: "For steady performance: each virtual CPU has a CPU that no other VM gets. Needs nodes with the kubelet's static CPU manager.",
			sizes:       general, dedicated: true, ioThreads: true,
		},
		{
			name: "m1", display: "Memory Intensive", class: "memory.intensive", icon: "fa-memory",
			description: "For what needs much memory, on huge pages. Needs nodes that have them.",
			sizes: []size{
				{"large", 2, "16Gi"}, {"xlarge", 4, "32Gi"}, {"2xlarge", 8, "64Gi"}, {"4xlarge", 16, "128Gi"}, {"8xlarge", 32, "256Gi"},
			},
			pages: []string{"2Mi", "1Gi"},
		},
		{
			name: "n1", display: "Network", class: "network", icon: "pficon-network",
			description: "For network functions with DPDK. Needs nodes that are made for them, as the label node-role.kubevirt.io/worker-dpdk says.",
			sizes: []size{
				{"medium", 4, "4Gi"}, {"large", 4, "8Gi"}, {"xlarge", 8, "16Gi"},
				{"2xlarge", 16, "32Gi"}, {"4xlarge", 32, "64Gi"}, {"8xlarge", 64, "128Gi"},
			},
			pages: []string{"1Gi"}, dedicated: true, unbalanced: true,
		},
		{
			name: "o1", display: "Overcommitted", class: "overcommitted", icon: "pficon-virtual-machine",
			description: "As u1, with half of the memory asked of the node: for many VMs of which few need all of theirs.",
			sizes:       generalBut("2xmedium"), overcommit: 50,
		},
		{
			name: "rt1", display: "Realtime", class: "realtime", icon: "pficon-server-group",
			description: "For realtime guests. Needs nodes with a realtime kernel, the kubelet's static CPU manager and huge pages.",
			sizes:       generalBut("nano", "2xmedium"),
			pages:       []string{"1Gi"}, dedicated: true, numa: true, realtime: true, unbalanced: true,
		},
		{
			name: "u1", display: "General Purpose", class: "general.purpose", icon: "pficon-server-group",
			description: "For anything: VMs share the node's CPUs with others.",
			sizes:       general,
		},
	}
}
