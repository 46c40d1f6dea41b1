package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

var update = flag.Bool("update", false, "write the golden files")

// machines are the kinds of machine that the configuration is rendered for.
var machines = map[string]Facts{
	"container": {CNIBin: "/usr/lib/cni", MTU: 1400, PauseImage: "registry.local/pause:1"},
	"systemd": {
		Systemd: true, AppArmor: true, SysResource: true, CNIBin: "/opt/cni/bin", MTU: 1500, PauseImage: "registry.local/pause:1",
		Resolvers: []string{"192.0.2.53", "198.51.100.53"},
	},
}

func TestRenderedConfiguration(t *testing.T) {
	c := layout.New("/src/slipway")
	for name, facts := range machines {
		n := c.First()
		text := section("containerd.toml", Containerd(n, facts)) + section("cni", CNI(n, facts)) + section("kubelet.yaml", Kubelet(c, n, facts)) +
			section("proxy.yaml", Proxy(n, facts)) + section("resolv.conf", ResolvConf(facts)) + section("Corefile", Corefile(facts)) +
			section("dns", DNS("registry.local/coredns:1", facts)) +
			section("metrics server", MetricsServer("registry.local/metrics-server:1")+"---\n"+MetricsAPI())
		compare(t, name+".txt", text)
	}
}

func TestCommandLines(t *testing.T) {
	c := layout.New("/src/slipway")
	second := layout.Node{Name: "slipway-2", IP: "10.244.1.1", PodCIDR: "10.244.1.0/24", Bridge: "slipway1", Dir: c.State + "/nodes/slipway-2"}
	c.Nodes = append(c.Nodes, second)
	var text strings.Builder
	names := map[string]bool{}
	for _, component := range Components(c) {
		fmt.Fprintf(&text, "%s (after %v, log %s)\n  %s\n", component.Name, component.After, component.Log, strings.Join(component.Command, "\n  "))
		if names[component.Name] {
			t.Errorf("two components are named %s", component.Name)
		}
		names[component.Name] = true
	}
	compare(t, "commands.txt", text.String())
}

func section(name, text string) string { return "##### " + name + "\n" + text }

func compare(t *testing.T, file, text string) {
	t.Helper()
	golden := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs from what is rendered (write it anew with -update):\n%s", golden, text)
	}
}
