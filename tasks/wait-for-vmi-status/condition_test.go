package waitforvmistatus

import (
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

func TestConditions(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{Status: virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Running, NodeName: "node1"}}
	for text, want := range map[string]bool{
		"status.phase == Running":                           true,
		"status.phase=Running":                              true,
		"status.phase == Succeeded":                         false,
		"status.phase in (Succeeded, Running)":              true,
		"status.phase notin (Succeeded, Failed)":            true,
		"status.phase == Running, status.nodeName == node1": true,
		"status.phase == Running, status.nodeName == node2": false,
		"status.phase != Failed":                            true,
		"!status.reason":                                    true,
		"status.reason":                                     false,
		"status.reason != x":                                true,
		"":                                                  false,
	} {
		c, err := parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got, err := c.holds(vmi); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestBadConditions(t *testing.T) {
	for text, want := range map[string]string{
		"status.phase ==== x": "could not parse condition",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
