package pod

import (
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// probeProgram is the program in the launcher image that asks the guest's agent.
const probeProgram = "/usr/bin/virt-probe"

// Kinds of probes, as the program knows them.
const (
	livenessKind  = "liveness"
	readinessKind = "readiness"
)

const (
	// livenessDelay is what a liveness probe waits longer than it says, in seconds: the guest
	// starts only when its container does.
	livenessDelay = 10
	// agentTime is what the kubelet waits longer for a probe through the guest's agent, in seconds.
	agentTime = 1
)

// computeProbe is the VMI's probe as the compute container's; nil for none. What the
// kubelet can ask itself it asks at the pod's address, which is the guest's.
func computeProbe(vmi *virtv1.VirtualMachineInstance, probe *virtv1.Probe, kind string) *corev1.Probe {
	if probe == nil {
		return nil
	}
	out := &corev1.Probe{
		InitialDelaySeconds: probe.InitialDelaySeconds, TimeoutSeconds: probe.TimeoutSeconds, PeriodSeconds: probe.PeriodSeconds,
		SuccessThreshold: probe.SuccessThreshold, FailureThreshold: probe.FailureThreshold,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: probe.HTTPGet, TCPSocket: probe.TCPSocket},
	}
	if kind == livenessKind {
		out.InitialDelaySeconds += livenessDelay
	}
	if throughAgent(probe) {
		out.Exec = &corev1.ExecAction{Command: probeCommand(vmi, probe, kind)}
		out.TimeoutSeconds += agentTime
	}
	return out
}

// throughAgent says whether the guest's agent answers the probe.
func throughAgent(probe *virtv1.Probe) bool {
	return probe != nil && (probe.Exec != nil || probe.GuestAgentPing != nil)
}

func probeCommand(vmi *virtv1.VirtualMachineInstance, probe *virtv1.Probe, kind string) []string {
	command := []string{
		probeProgram,
		"--socket", path.Join(names.LauncherPrivateDir, string(vmi.UID), names.LauncherProbeSocket),
		"--kind", kind,
		"--timeout-seconds", strconv.Itoa(int(probe.TimeoutSeconds)),
	}
	if probe.Exec != nil {
		command = append(append(command, "--"), probe.Exec.Command...)
	}
	return command
}
