package podnet

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-vm/slipway/runtime/network"
)

// Apply brings the namespace ns to plan.
func Apply(ns *os.File, plan network.Plan) error {
	return within(ns, func() error {
		for _, tap := range plan.Taps {
			if err := ensureTap(tap); err != nil {
				return fmt.Errorf("making %s: %w", tap.Name, err)
			}
		}
		for _, sysctl := range plan.Sysctls {
			if err := setSysctl(sysctl); err != nil {
				return err
			}
		}
		if err := replaceTables(plan.Tables); err != nil {
			return fmt.Errorf("setting nftables (the node's kernel needs nf_tables with nat): %w", err)
		}
		for _, wire := range plan.Wires {
			if err := ensureWire(wire); err != nil {
				return fmt.Errorf("wiring %s to %s: %w", wire.Tap, wire.Pod, err)
			}
		}
		return nil
	})
}

// setSysctl writes a setting unless it has its value; /proc/sys/net is that of the
// thread's namespace.
func setSysctl(sysctl network.Sysctl) error {
	path := filepath.Join("/proc/sys", sysctl.Path)
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading sysctl %s: %w", sysctl.Path, err)
	}
	if string(old) == sysctl.Value+"\n" {
		return nil
	}
	if err := os.WriteFile(path, []byte(sysctl.Value), 0o644); err != nil {
		return fmt.Errorf("setting sysctl %s to %s: %w", sysctl.Path, sysctl.Value, err)
	}
	return nil
}
