package v1beta1

import "strings"

// Active returns the one object that counts when there are several: the oldest, by name
// among those of the same second. Nil when there is none.
func Active(items []HostPathProvisioner) *HostPathProvisioner {
	var active *HostPathProvisioner
	for i := range items {
		if active == nil || items[i].olderThan(active) {
			active = &items[i]
		}
	}
	return active
}

func (h *HostPathProvisioner) olderThan(other *HostPathProvisioner) bool {
	if h.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return strings.Compare(h.Name, other.Name) < 0
	}
	return h.CreationTimestamp.Before(&other.CreationTimestamp)
}

// Selects tells whether a node with these labels has the pools.
func (p NodePlacement) Selects(nodeLabels map[string]string) bool {
	for key, value := range p.NodeSelector {
		if nodeLabels[key] != value {
			return false
		}
	}
	return true
}
