package hypervisor

import (
	"os"
	"strings"
	"testing"
)

func TestTheHostsModelIsAProcessor(t *testing.T) {
	for _, name := range []string{"kvm", "emulation"} {
		abilities, err := os.ReadFile("../../processor/testdata/" + name + "/domaincapabilities.xml")
		if err != nil {
			t.Fatal(err)
		}
		got, err := hostModel(string(abilities))
		if err != nil {
			t.Fatal(err)
		}
		model := map[string]string{"kvm": "Skylake-Server-IBRS", "emulation": "EPYC"}[name]
		for _, part := range []string{`mode="custom"`, `<model fallback="forbid">` + model + `</model>`, `<feature policy="require" name="hypervisor">`} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %s in\n%s", name, part, got)
			}
		}
	}
	without := `<domainCapabilities><path>/q</path><domain>kvm</domain><arch>x86_64</arch><cpu><mode name="host-model" supported="no"/></cpu></domainCapabilities>`
	if got, err := hostModel(without); got != "" || err != nil {
		t.Errorf("a host without a model: %q, %v", got, err)
	}
	if _, err := hostModel("<domainCapabilities>"); err == nil {
		t.Error("a document that is cut off was read")
	}
}
