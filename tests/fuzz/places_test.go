//go:build integration

package fuzz

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// TestLibvirtTakesPlacesOnPCI asks libvirt about the edges of what admission lets a device ask for;
// machines made at random rarely have such places.
func TestLibvirtTakesPlacesOnPCI(t *testing.T) {
	gate, err := theGate()
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t)
	const machine = `{"metadata": {"name": "x", "namespace": "prod"}, "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": {
		"domain": {"memory": {"guest": "128Mi"}, "devices": {"useVirtioTransitional": %t, "disableHotplug": %t,
			"disks": [{"name": "a", "disk": {"bus": "virtio", "pciAddress": %q}}, {"name": "b", "disk": {"bus": "virtio", "pciAddress": %q}}],
			"interfaces": [{"name": "default", "masquerade": {}, "model": %q, "pciAddress": %q}]}},
		"networks": [{"name": "default", "pod": {}}],
		"volumes": [{"name": "a", "emptyDisk": {"capacity": "1Gi"}}, {"name": "b", "emptyDisk": {"capacity": "1Gi"}}]}}`
	for _, places := range [][3]string{
		{"0000:00:01.0", "0000:00:02.0", "0000:00:1e.7"},
		{"0000:00:08.0", "0000:00:08.3", "0000:00:08.7"},
		{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"},
		{"0000:07:00.1", "0000:07:00.0", "0000:09:00.0"},
		{"0000:3f:00.0", "0000:00:1D.0", "0000:0A:00.0"},
		{"0000:3F:00.0", "", ""},
	} {
		for i, model := range []string{"virtio", "e1000e", "rtl8139"} {
			text := fmt.Sprintf(machine, i == 0, i == 1, places[0], places[1], model, places[2])
			object := map[string]any{}
			if err := json.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			vmi, err := gate.pass(t.Context(), object)
			onPort := func(place string) bool { return place != "" && !strings.HasPrefix(place, "0000:00:") }
			old := i == 0 && (onPort(places[0]) || onPort(places[1]) || onPort(places[2])) || model == "rtl8139" && onPort(places[2])
			if err != nil || old != (vmi == nil) {
				t.Errorf("places %v with %s: admitted %t, %v", places, model, vmi != nil, err)
			}
			if vmi == nil || err != nil {
				continue
			}
			built, err := domain.Build(input(vmi, false, 0))
			if err == nil {
				err = define(conn, built)
			}
			if err != nil {
				t.Errorf("places %v with %s are admitted, but libvirt does not take them: %v", places, model, err)
			}
		}
	}
}
