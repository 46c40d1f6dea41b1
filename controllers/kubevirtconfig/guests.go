package kubevirtconfig

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// longestPeriod is a day, in seconds: a guest that tells of its memory less often tells nothing.
const longestPeriod = 24 * 60 * 60

// guests refuses what no guest can be given that names nothing else.
func guests(config *virtv1.KubeVirtConfiguration, at *field.Path) field.ErrorList {
	errs := cpuModel(config.CPUModel, at.Child("cpuModel"))
	if request := config.CPURequest; request != nil && request.Sign() <= 0 {
		errs = append(errs, field.Invalid(at.Child("cpuRequest"), request.String(), "write how much CPU is requested, such as 500m, or leave it out: virtual CPUs share processors"))
	}
	if period := config.MemBalloonStatsPeriod; period != nil && *period > longestPeriod {
		errs = append(errs, field.Invalid(at.Child("memBalloonStatsPeriod"), *period, fmt.Sprintf("it is from 0, for never, to %d seconds", longestPeriod)))
	}
	errs = append(errs, connection(config.NetworkConfiguration, at.Child("network"))...)
	errs = append(errs, machines(config.MachineType, config.EmulatedMachines, at)...)
	of := at.Child("architectureConfiguration", "amd64")
	if config.ArchitectureConfiguration != nil && config.ArchitectureConfiguration.Amd64 != nil {
		amd64 := config.ArchitectureConfiguration.Amd64
		errs = append(errs, machines(amd64.MachineType, amd64.EmulatedMachines, of)...)
	}
	if len(errs) > 0 {
		return errs
	}
	cluster := defaults.Of(config)
	machine := cmp.Or(cluster.Machine, defaults.Machine)
	if cluster.Allows(machine) {
		return nil
	}
	if config.EmulatedMachines != nil {
		of = at
	}
	return field.ErrorList{field.Invalid(of.Child("emulatedMachines"), cluster.Machines, fmt.Sprintf(
		"virtual machines that name no machine type have %s, which none of these matches; add one that does, or write another machineType", machine))}
}

// optOut is the field's gate of roles that are not aggregated, which is on unless it is turned off.
const optOut = "OptOutRoleAggregation"

// roles refuses roles that are given by hand where their gate is off.
func roles(config *virtv1.KubeVirtConfiguration, at *field.Path) field.ErrorList {
	strategy, developer := config.RoleAggregationStrategy, config.DeveloperConfiguration
	if strategy == nil || *strategy != virtv1.RoleAggregationStrategyManual || developer == nil || !slices.Contains(developer.DisabledFeatureGates, optOut) {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("roleAggregationStrategy"), *strategy,
		"RoleAggregationStrategy cannot be set to Manual without enabling the "+optOut+" feature gate")}
}

// connection refuses bindings of guests that name no interface but the one that they have.
func connection(asked *virtv1.NetworkConfiguration, at *field.Path) field.ErrorList {
	if asked == nil || asked.NetworkInterface == "" || asked.NetworkInterface == string(virtv1.MasqueradeInterface) {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("defaultNetworkInterface"), asked.NetworkInterface,
		"virtual machines that name no interface have masquerade; leave the field out, and write bridge: {} in the interfaces of those that are to have a bridge")}
}

func cpuModel(model string, at *field.Path) field.ErrorList {
	if model == "" {
		return nil
	}
	var errs field.ErrorList
	for _, problem := range validation.IsQualifiedName(virtv1.CPUModelLabel + model) {
		errs = append(errs, field.Invalid(at, model, "no CPU model has such a name: "+problem))
	}
	return errs
}

// machines refuses a machine type that no guest can have, and patterns that are none.
func machines(machine string, patterns []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if machine != "" && !defaults.ThereIs(machine) {
		errs = append(errs, field.Invalid(at.Child("machineType"), machine, defaults.Machines))
	}
	for i, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			errs = append(errs, field.Invalid(at.Child("emulatedMachines").Index(i), pattern, `it is no pattern as of file names, such as "pc-q35*": `+err.Error()))
		}
	}
	return errs
}
