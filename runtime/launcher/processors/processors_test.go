package processors

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/domain"
)

func TestWhereAProcessorIs(t *testing.T) {
	for name, c := range map[string]struct {
		siblings, node string
		want           domain.HostCPU
	}{
		"the second thread of a core":     {"2,6\n", "node1", domain.HostCPU{ID: 6, Core: 2, Node: 1}},
		"threads with numbers in a row":   {"6-7\n", "node0", domain.HostCPU{ID: 6, Core: 6}},
		"a core of one thread":            {"6\n", "node12", domain.HostCPU{ID: 6, Core: 6, Node: 12}},
		"a kernel that tells no topology": {"", "", domain.HostCPU{ID: 6, Core: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			folder := filepath.Join(sys, "devices", "system", "cpu", "cpu6")
			if err := os.MkdirAll(filepath.Join(folder, "topology"), 0o755); err != nil {
				t.Fatal(err)
			}
			if c.siblings != "" {
				if err := os.WriteFile(filepath.Join(folder, "topology", "thread_siblings_list"), []byte(c.siblings), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.node != "" {
				if err := os.Mkdir(filepath.Join(folder, c.node), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			got, err := describe(sys, 6)
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestOwnAreThoseOfThisProcess(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	cpus, err := Own("/sys")
	if err != nil || len(cpus) != set.Count() {
		t.Errorf("%+v, %v; want %d", cpus, err, set.Count())
	}
}
