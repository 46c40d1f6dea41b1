//go:build integration

package kvm

import (
	"os"
	"testing"
)

func TestTheGuestComputesItsSum(t *testing.T) {
	if _, err := os.Stat(Device); err != nil {
		t.Skip("this machine has no /dev/kvm; nothing to run the guest with")
	}
	// Few enough rounds for a host that emulates each instruction.
	if err := count(100); err != nil {
		t.Error(err)
	}
}
