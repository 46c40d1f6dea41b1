// Package machine prepares a machine for a node and undoes it: Debian packages,
// sysctls, mounts, cgroups, the bridge, packet filter tables and the disk pool.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// Record is what the machine remembers of the active cluster: where it is and
// what was changed for it, so that another checkout can end it cleanly.
type Record struct {
	// Cluster is the active cluster.
	Cluster layout.Cluster `json:"cluster"`
	// Boot is the boot during which the changes were made.
	Boot string `json:"boot"`
	// Sysctls are the values before.
	Sysctls map[string]string `json:"sysctls"`
	// Private are the mount points that were private before.
	Private []string `json:"private"`
	// Forward tells that packets of the bridge had to be let through the machine's filter.
	Forward bool `json:"forward"`
	// Chains are packet filter chains of the port mapping plugin that were there before.
	Chains []string `json:"chains"`
	// Tables are the packet filter tables that were there before.
	Tables []string `json:"tables"`
}

func recordFile() string { return filepath.Join(layout.MachineDir, "active.json") }

// RecordsDir is the folder with the active cluster's processes.
func RecordsDir() string { return filepath.Join(layout.MachineDir, "run") }

// Load returns the record of the active cluster, nil when there is none.
func Load() (*Record, error) {
	b, err := os.ReadFile(recordFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of the active cluster: %w", err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w; remove it when no cluster runs", recordFile(), err)
	}
	return &r, nil
}

// Save writes the record.
func (r *Record) Save() error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the record of the active cluster: %w", err)
	}
	tmp := recordFile() + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the record of the active cluster: %w", err)
	}
	if err := os.Rename(tmp, recordFile()); err != nil {
		return fmt.Errorf("writing the record of the active cluster: %w", err)
	}
	return nil
}

// Remove forgets the active cluster.
func Remove() error {
	if err := os.Remove(recordFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the record of the active cluster: %w", err)
	}
	return os.RemoveAll(RecordsDir())
}
