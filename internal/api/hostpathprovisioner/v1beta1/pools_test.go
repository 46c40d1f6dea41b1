package v1beta1

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestTheDirectoryOfTheLegacyProvisionerHasAPoolToo(t *testing.T) {
	spec := HostPathProvisionerSpec{StoragePools: []StoragePool{{Name: "local", Path: "/srv/pool"}}}
	if got := spec.Pools(); len(got) != 1 {
		t.Errorf("without pathConfig the pools are %v", got)
	}
	spec.PathConfig = &PathConfig{Path: "/var/hpvolumes"}
	var got []string
	for _, pool := range spec.Pools() {
		got = append(got, pool.Name+" "+pool.Path)
	}
	if want := []string{"local /srv/pool", "legacy /var/hpvolumes/csi"}; !slices.Equal(got, want) {
		t.Errorf("the pools are %q, want %q", got, want)
	}
	if len(spec.StoragePools) != 1 {
		t.Error("the object was changed")
	}
}

func TestNamesOfClaimsAreShortAndTellNodesApart(t *testing.T) {
	pool := StoragePool{Name: "local"}
	if got := pool.ClaimName("node-1"); got != "hpp-pool-local-node-1" {
		t.Errorf("the name is %q", got)
	}
	seen := map[string]bool{}
	long := strings.Repeat("a-very-long-name.", 3)
	for _, node := range []string{long + "example.com", long + "example.org", long + "x." + long} {
		for _, pool := range []StoragePool{{Name: "local"}, {Name: strings.Repeat("x", 50)}} {
			name := pool.ClaimName(node)
			if problems := slices.Concat(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name), validation.IsValidLabelValue(pool.Label())); len(problems) > 0 {
				t.Errorf("%q: %v", name, problems)
			}
			if seen[name] {
				t.Errorf("%q is of two nodes", name)
			}
			seen[name] = true
		}
	}
}
