package virtualmachine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// sized is the complete spec of a VM with so many sockets.
func sized(sockets uint32) *virtv1.VirtualMachineInstanceSpec {
	spec := &virtv1.VirtualMachineInstanceSpec{}
	spec.Domain.CPU = &virtv1.CPU{Sockets: sockets, Cores: 2, Threads: 1}
	spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("96Mi")), MaxGuest: new(resource.MustParse("256Mi"))}
	return spec
}

// grower is a running instance of two sockets that can have four.
func grower() *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{Spec: *sized(2)}
	vmi.Spec.Domain.CPU.MaxSockets = 4
	vmi.Status.Phase = virtv1.Running
	vmi.Status.Memory = &virtv1.MemoryStatus{GuestAtBoot: new(resource.MustParse("64Mi")), GuestRequested: new(resource.MustParse("96Mi"))}
	vmi.Status.CurrentCPUTopology = &virtv1.CPUTopology{Sockets: 2, Cores: 2, Threads: 1}
	return vmi
}

// memory asks for so much of it.
func memory(size string) func(*virtv1.VirtualMachineInstanceSpec, *virtv1.VirtualMachineInstance) {
	return func(is *virtv1.VirtualMachineInstanceSpec, _ *virtv1.VirtualMachineInstance) {
		is.Domain.Memory.Guest = new(resource.MustParse(size))
	}
}

func TestChangesAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		sockets uint32
		stage   bool
		change  func(is *virtv1.VirtualMachineInstanceSpec, vmi *virtv1.VirtualMachineInstance)
		want    change
	}{
		"nothing that counts": {sockets: 2},
		"one socket more":     {sockets: 3, want: change{sockets: 3}},
		"more than there can be": {
			sockets: 5, want: change{restart: messageTooManySockets},
		},
		"one socket more of a VM without a maximum": {
			sockets: 3, want: change{restart: messageTooManySockets},
			change: func(_ *virtv1.VirtualMachineInstanceSpec, vmi *virtv1.VirtualMachineInstance) {
				vmi.Spec.Domain.CPU.MaxSockets = 0
			},
		},
		"one socket less":                         {sockets: 1, want: change{restart: messageFewerSockets}},
		"one socket more, where changes wait":     {sockets: 3, stage: true, want: change{restart: messageRestartNeeded}},
		"nothing that counts, where changes wait": {sockets: 2, stage: true},
		"another host name": {
			sockets: 2, want: change{restart: messageRestartNeeded},
			change: func(is *virtv1.VirtualMachineInstanceSpec, _ *virtv1.VirtualMachineInstance) { is.Hostname = "other" },
		},
		"one socket more and another host name": {
			sockets: 3, want: change{restart: messageRestartNeeded},
			change: func(is *virtv1.VirtualMachineInstanceSpec, _ *virtv1.VirtualMachineInstance) { is.Hostname = "other" },
		},
		"more cores": {
			sockets: 2, want: change{restart: messageRestartNeeded},
			change: func(is *virtv1.VirtualMachineInstanceSpec, _ *virtv1.VirtualMachineInstance) { is.Domain.CPU.Cores = 4 },
		},
		"one socket more of a guest with a queue for each processor": {
			sockets: 3, want: change{restart: messageMultiQueue},
			change: func(is *virtv1.VirtualMachineInstanceSpec, _ *virtv1.VirtualMachineInstance) {
				is.Domain.Devices.NetworkInterfaceMultiQueue = new(true)
			},
		},
		"one socket more of a guest that starts": {
			sockets: 3, want: change{wait: true},
			change: func(_ *virtv1.VirtualMachineInstanceSpec, vmi *virtv1.VirtualMachineInstance) {
				vmi.Status.Phase = virtv1.Scheduled
			},
		},
		"one socket more while another is plugged in": {
			sockets: 4, want: change{wait: true},
			change: func(_ *virtv1.VirtualMachineInstanceSpec, vmi *virtv1.VirtualMachineInstance) {
				vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue}}
			},
		},
		"one that the node had no room for, taken back": {
			sockets: 2, want: change{sockets: 2},
			change: func(_ *virtv1.VirtualMachineInstanceSpec, vmi *virtv1.VirtualMachineInstance) {
				vmi.Spec.Domain.CPU.Sockets = 3
			},
		},
		"more memory":                   {sockets: 2, change: memory("128Mi"), want: change{guest: 128 << 20}},
		"more memory and a socket":      {sockets: 3, change: memory("128Mi"), want: change{sockets: 3, guest: 128 << 20}},
		"more memory than there can be": {sockets: 2, change: memory("512Mi"), want: change{restart: messageTooMuchMemory}},
		"less memory than at the start": {sockets: 2, change: memory("32Mi"), want: change{restart: messageLessMemory}},
		"less memory than it has":       {sockets: 2, change: memory("80Mi"), want: change{restart: messageShrinkMemory}},
		"an odd piece of memory":        {sockets: 2, change: memory("129Mi"), want: change{restart: messageUnevenMemory}},
		"a launcher that cannot tell": {
			sockets: 3, want: change{restart: messageOldLauncher},
			change: func(_ *virtv1.VirtualMachineInstanceSpec, vmi *virtv1.VirtualMachineInstance) {
				vmi.Status.CurrentCPUTopology = nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			was, is, vmi := sized(2), sized(c.sockets), grower()
			if c.change != nil {
				if c.change(is, vmi); is.Domain.Devices.NetworkInterfaceMultiQueue != nil {
					was.Domain.Devices = *is.Domain.Devices.DeepCopy()
				}
			}
			if got := changeOf(comparison{was: was, is: is, vmi: vmi, stage: c.stage}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestMaximumOfSockets(t *testing.T) {
	for name, c := range map[string]struct {
		config virtv1.KubeVirtConfiguration
		cpu    virtv1.CPU
		want   uint32
	}{
		"four times":                    {cpu: virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1}, want: 8},
		"at most 512 processors":        {cpu: virtv1.CPU{Sockets: 20, Cores: 8, Threads: 2}, want: 32},
		"never fewer than there are":    {cpu: virtv1.CPU{Sockets: 2, Cores: 300, Threads: 1}, want: 0},
		"the VM's own":                  {cpu: virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1, MaxSockets: 3}, want: 3},
		"none where emulation may be":   {config: emulating(), cpu: virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1}},
		"none where changes are staged": {config: virtv1.KubeVirtConfiguration{VMRolloutStrategy: ptr.To(virtv1.VMRolloutStrategyStage)}, cpu: virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1}},
		"as the cluster says": {
			config: virtv1.KubeVirtConfiguration{LiveUpdateConfiguration: &virtv1.LiveUpdateConfiguration{MaxCpuSockets: ptr.To[uint32](6)}},
			cpu:    virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1}, want: 6,
		},
		"by the cluster's ratio": {
			config: virtv1.KubeVirtConfiguration{LiveUpdateConfiguration: &virtv1.LiveUpdateConfiguration{MaxHotplugRatio: 3}},
			cpu:    virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1}, want: 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &virtv1.VirtualMachineInstanceSpec{}
			spec.Domain.CPU = &c.cpu
			setMaxSockets(spec, settingsOf(&virtv1.KubeVirt{Spec: virtv1.KubeVirtSpec{Configuration: c.config}}))
			if got := spec.Domain.CPU.MaxSockets; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func emulating() virtv1.KubeVirtConfiguration {
	return virtv1.KubeVirtConfiguration{DeveloperConfiguration: &virtv1.DeveloperConfiguration{UseEmulation: true}}
}
