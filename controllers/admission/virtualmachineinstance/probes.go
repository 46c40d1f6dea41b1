package virtualmachineinstance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// probes checks readiness and liveness, in the field's words, and what the API server
// would refuse of the launcher pod much later.
func probes(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := append(probe(spec, spec.ReadinessProbe, path.Child("readinessProbe")), probe(spec, spec.LivenessProbe, path.Child("livenessProbe"))...)
	if live := spec.LivenessProbe; live != nil && live.SuccessThreshold > 1 {
		errs = append(errs, field.Invalid(path.Child("livenessProbe", "successThreshold"), live.SuccessThreshold, "must be 1"))
	}
	return errs
}

func probe(spec *virtv1.VirtualMachineInstanceSpec, probe *virtv1.Probe, at *field.Path) field.ErrorList {
	if probe == nil {
		return nil
	}
	var errs field.ErrorList
	switch handlers := count(probe.HTTPGet != nil, probe.TCPSocket != nil, probe.Exec != nil, probe.GuestAgentPing != nil); {
	case handlers > 1:
		errs = append(errs, field.Invalid(at, "", fmt.Sprintf("%s must have exactly one probe type set", at)))
	case handlers == 0:
		errs = append(errs, field.Required(at, fmt.Sprintf("either %s, %s or %s must be set if a %s is specified",
			at.Child("tcpSocket"), at.Child("exec"), at.Child("httpGet"), at)))
	}
	if probe.InitialDelaySeconds < 0 {
		errs = append(errs, field.Invalid(at.Child("initialDelaySeconds"), probe.InitialDelaySeconds, "must be greater than or equal to 0"))
	}
	if probe.Exec != nil && len(probe.Exec.Command) == 0 {
		errs = append(errs, field.Required(at.Child("exec", "command"), "name the command to run in the guest"))
	}
	if probe.HTTPGet != nil {
		errs = append(errs, asked(spec, probe.HTTPGet.Port, at.Child("httpGet"))...)
	}
	if probe.TCPSocket != nil {
		errs = append(errs, asked(spec, probe.TCPSocket.Port, at.Child("tcpSocket"))...)
	}
	return errs
}

// asked checks that the kubelet reaches port of the guest.
func asked(spec *virtv1.VirtualMachineInstanceSpec, port intstr.IntOrString, at *field.Path) field.ErrorList {
	if !onPodNetwork(spec) {
		return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("%s is only allowed if the Pod Network is attached", at))}
	}
	var errs field.ErrorList
	words := validation.IsValidPortNum(int(port.IntVal))
	if port.Type == intstr.String {
		words = validation.IsValidPortName(port.StrVal)
	}
	for _, message := range words {
		errs = append(errs, field.Invalid(at.Child("port"), port.String(), message))
	}
	return errs
}

func onPodNetwork(spec *virtv1.VirtualMachineInstanceSpec) bool {
	for _, network := range spec.Networks {
		if network.Pod != nil {
			return true
		}
	}
	return false
}
