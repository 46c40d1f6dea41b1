package defaults

import (
	"slices"

	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// VMX is the feature of a processor by which its guest is a hypervisor itself, as evmcs needs it.
const VMX = "vmx"

// HypervNeed is a feature of spec.domain.features.hyperv that is nothing without another.
type HypervNeed struct {
	// Feature and Needs are as the API writes them.
	Feature, Needs string
	feature        func(*virtv1.FeatureHyperv) *virtv1.FeatureState
	needs          func(*virtv1.FeatureHyperv) **virtv1.FeatureState
}

// hypervNeeds are in such an order that what needs something comes before what needs that.
var hypervNeeds = []HypervNeed{
	{"synictimer", "synic", synicTimer, func(h *virtv1.FeatureHyperv) **virtv1.FeatureState { return &h.SyNIC }},
	{"synic", "vpindex", func(h *virtv1.FeatureHyperv) *virtv1.FeatureState { return h.SyNIC }, vpIndex},
	{"tlbflush", "vpindex", tlbFlush, vpIndex},
	{"ipi", "vpindex", func(h *virtv1.FeatureHyperv) *virtv1.FeatureState { return h.IPI }, vpIndex},
	{"evmcs", "vapic", func(h *virtv1.FeatureHyperv) *virtv1.FeatureState { return h.EVMCS }, func(h *virtv1.FeatureHyperv) **virtv1.FeatureState { return &h.VAPIC }},
}

func vpIndex(h *virtv1.FeatureHyperv) **virtv1.FeatureState { return &h.VPIndex }

func synicTimer(h *virtv1.FeatureHyperv) *virtv1.FeatureState {
	if h.SyNICTimer == nil {
		return nil
	}
	return &h.SyNICTimer.FeatureState
}

func tlbFlush(h *virtv1.FeatureHyperv) *virtv1.FeatureState {
	if h.TLBFlush == nil {
		return nil
	}
	return &h.TLBFlush.FeatureState
}

// isOn says whether a feature is on, as one that is named without a value is.
func isOn(state *virtv1.FeatureState) bool { return state != nil && ptr.Deref(state.Enabled, true) }

// setHyperv turns on what the features that are on need and nobody has said anything of.
func setHyperv(domain *virtv1.DomainSpec) {
	if domain.Features == nil || domain.Features.Hyperv == nil {
		return
	}
	hyperv := domain.Features.Hyperv
	for _, need := range hypervNeeds {
		needed := need.needs(hyperv)
		switch {
		case !isOn(need.feature(hyperv)):
		case *needed == nil:
			*needed = &virtv1.FeatureState{Enabled: new(true)}
		case (*needed).Enabled == nil:
			(*needed).Enabled = new(true)
		}
	}
	if isOn(hyperv.EVMCS) && vmx(domain) < 0 {
		if domain.CPU == nil {
			domain.CPU = &virtv1.CPU{}
		}
		domain.CPU.Features = append(domain.CPU.Features, virtv1.CPUFeature{Name: VMX, Policy: "require"})
	}
}

// vmx is the place of VMX in domain's list of the processor's features; -1 where it is not on it.
func vmx(domain *virtv1.DomainSpec) int {
	if domain.CPU == nil {
		return -1
	}
	return slices.IndexFunc(domain.CPU.Features, func(feature virtv1.CPUFeature) bool { return feature.Name == VMX })
}

// HypervLacks returns the features that are on and need one that is off.
func HypervLacks(hyperv *virtv1.FeatureHyperv) []HypervNeed {
	return slices.DeleteFunc(slices.Clone(hypervNeeds), func(need HypervNeed) bool {
		return !isOn(need.feature(hyperv)) || isOn(*need.needs(hyperv))
	})
}

// LacksVMX returns the place, in the list of the processor's features, of a VMX that the guest may be
// without although a feature of Hyper-V's needs it; -1 for none.
func LacksVMX(domain *virtv1.DomainSpec) int {
	i := vmx(domain)
	if i < 0 || domain.Features == nil || domain.Features.Hyperv == nil || !isOn(domain.Features.Hyperv.EVMCS) {
		return -1
	}
	if policy := domain.CPU.Features[i].Policy; policy == "" || policy == "require" || policy == "force" {
		return -1
	}
	return i
}
