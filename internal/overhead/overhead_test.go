package overhead

import "testing"

func TestBytes(t *testing.T) {
	const mebi = 1 << 20
	for name, c := range map[string]struct {
		machine Machine
		want    int64
	}{
		"a small one with KVM":         {Machine{Guest: 512 * mebi, VCPUs: 1, KVM: true}, 1 + 45 + 60 + 8},
		"with a screen and two CPUs":   {Machine{Guest: 512 * mebi, VCPUs: 2, Graphics: true, KVM: true}, 1 + 45 + 60 + 16 + 16},
		"with two probes by the agent": {Machine{Guest: 512 * mebi, VCPUs: 1, KVM: true, AgentProbes: 2}, 1 + 45 + 60 + 8 + 32},
		"with two filesystems":         {Machine{Guest: 512 * mebi, VCPUs: 1, KVM: true, Filesystems: 2}, 1 + 45 + 60 + 8 + 24},
		"held to what it requests":     {Machine{Guest: 512 * mebi, VCPUs: 1, KVM: true, Limited: true}, 1 + 45 + 60 + 8 + 100},
		"emulated, the least buffer":   {Machine{Guest: 128 * mebi, VCPUs: 1}, 45 + 60 + 8 + 8 + 32},
		"emulated, an eighth":          {Machine{Guest: 384 * mebi, VCPUs: 1}, 45 + 60 + 8 + 8 + 48},
		"emulated, the most":           {Machine{Guest: 4096 * mebi, VCPUs: 1}, 8 + 45 + 60 + 8 + 8 + 64},
	} {
		if got := c.machine.Bytes() / mebi; got != c.want {
			t.Errorf("%s: %d MiB, want %d", name, got, c.want)
		}
	}
	if Launcher > First {
		t.Error("the parts beside QEMU are over the goal for the first virtual machine of a node")
	}
}
