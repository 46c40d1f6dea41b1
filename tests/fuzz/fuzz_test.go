package fuzz

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/tests/fixture/random"
)

var theGate = sync.OnceValues(newGate)

// size of a seed: what a machine of many fields uses.
const size = 1024

// FuzzMachine shows that admission answers whatever it is asked with the path of what it refuses,
// and that the domain builder takes what is admitted, with KVM and without.
func FuzzMachine(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(random.Seeded(seed, size))
	}
	gate, err := theGate()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		object := machine(gate.definition.schema, data)
		vmi, err := gate.pass(t.Context(), object)
		if err != nil {
			t.Fatalf("%v\n%s", err, pretty(object))
		}
		if vmi == nil {
			return
		}
		for _, kvm := range []bool{false, true} {
			built, err := domain.Build(input(vmi, kvm, len(data)))
			if err != nil {
				t.Fatalf("admitted, but no domain can be made of it: %v\n%s", err, pretty(object))
			}
			if _, err := built.Marshal(); err != nil {
				t.Fatalf("admitted, but its domain is no XML: %v\n%s", err, pretty(object))
			}
		}
	})
}

// TestMostMachinesMadeAtRandomAreOfUse holds the share of admitted ones up: a fuzzer whose
// machines are all refused shows nothing of the builder.
func TestMostMachinesMadeAtRandomAreOfUse(t *testing.T) {
	gate, err := theGate()
	if err != nil {
		t.Fatal(err)
	}
	const all = 400
	admitted := 0
	for seed := range uint64(all) {
		vmi, err := gate.pass(t.Context(), machine(gate.definition.schema, random.Seeded(seed, size)))
		if vmi != nil && err == nil {
			admitted++
		}
	}
	t.Logf("%d of %d admitted", admitted, all)
	if admitted < all/8 {
		t.Errorf("%d of %d machines are admitted; give the fields that refuse the others better values", admitted, all)
	}
}

func pretty(object any) string {
	data, err := json.MarshalIndent(object, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
