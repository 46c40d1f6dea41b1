package defaults

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestHypervFeaturesGetWhatTheyNeed(t *testing.T) {
	for name, c := range map[string]struct{ domain, want string }{
		"a timer, all the way down":      {"features: {hyperv: {synictimer: {}}}", "features: {hyperv: {synictimer: {enabled: true}, synic: {enabled: true}, vpindex: {enabled: true}}}"},
		"an interrupt controller":        {"features: {hyperv: {synic: {}}}", "features: {hyperv: {synic: {enabled: true}, vpindex: {enabled: true}}}"},
		"flushes and interrupts":         {"features: {hyperv: {tlbflush: {}, ipi: {}}}", "features: {hyperv: {tlbflush: {enabled: true}, ipi: {enabled: true}, vpindex: {enabled: true}}}"},
		"what is off needs nothing":      {"features: {hyperv: {synictimer: {enabled: false}, ipi: {enabled: false}}}", "features: {hyperv: {synictimer: {enabled: false}, ipi: {enabled: false}}}"},
		"what is off stays off":          {"features: {hyperv: {synic: {}, vpindex: {enabled: false}}}", "features: {hyperv: {synic: {enabled: true}, vpindex: {enabled: false}}}"},
		"a hypervisor in the guest":      {"features: {hyperv: {evmcs: {}}}", "features: {hyperv: {evmcs: {enabled: true}, vapic: {enabled: true}}}\ncpu: {features: [{name: vmx, policy: require}]}"},
		"one whose processor knows":      {"features: {hyperv: {evmcs: {}}}\ncpu: {features: [{name: vmx, policy: force}]}", "features: {hyperv: {evmcs: {enabled: true}, vapic: {enabled: true}}}\ncpu: {features: [{name: vmx, policy: force}]}"},
		"nothing of Hyper-V":             {"features: {acpi: {}}", "features: {acpi: {}}"},
		"what needs nothing stays alone": {"features: {hyperv: {relaxed: {}, spinlocks: {}}}", "features: {hyperv: {relaxed: {enabled: true}, spinlocks: {enabled: true, spinlocks: 4096}}}"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{Spec: virtv1.VirtualMachineInstanceSpec{Domain: domain(t, c.domain)}}
			Set(vmi, Cluster{})
			got, want := told(t, vmi.Spec.Domain), told(t, domain(t, c.want))
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func domain(t *testing.T, text string) virtv1.DomainSpec {
	t.Helper()
	var spec virtv1.DomainSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// told is what domain says of Hyper-V's features and the processor's.
func told(t *testing.T, domain virtv1.DomainSpec) string {
	t.Helper()
	say := map[string]any{"hyperv": domain.Features.Hyperv}
	if domain.CPU != nil && len(domain.CPU.Features) > 0 {
		say["cpu"] = domain.CPU.Features
	}
	text, err := yaml.Marshal(say)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
