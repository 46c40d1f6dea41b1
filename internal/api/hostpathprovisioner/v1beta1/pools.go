package v1beta1

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// The pool of the driver in the directory of the legacy provisioner, by the field's names.
const (
	LegacyPool      = "legacy"
	legacyDirectory = "/csi"
)

// Pools are the pools of the driver: the storage pools, and that of pathConfig.
func (s *HostPathProvisionerSpec) Pools() []StoragePool {
	pools := s.StoragePools
	if s.PathConfig != nil {
		pools = append(slices.Clip(pools), StoragePool{Name: LegacyPool, Path: s.PathConfig.Path + legacyDirectory})
	}
	return pools
}

// Label is the value of the labels that say of which pool a claim, a Deployment or a pod is, as the field writes it.
func (p StoragePool) Label() string { return p.Name + "-hpp" }

// longestName is how long the names of what is made for a node may be, in bytes: they are values of labels, too.
const longestName = 63

// ClaimName is the name of the claim that the pool lies on on a node, and of the Deployment that holds it there, as the field
// gives them: hpp-pool-<pool>-<node>. A longer one ends with a hash of the whole.
func (p StoragePool) ClaimName(node string) string {
	name := "hpp-pool-" + p.Name + "-" + node
	if len(name) <= longestName {
		return name
	}
	hash := fnv.New32a()
	hash.Write([]byte(name))
	end := fmt.Sprintf("-%08x", hash.Sum32())
	return strings.TrimRight(name[:longestName-len(end)], "-.") + end
}
