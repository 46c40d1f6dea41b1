package virtualmachineinstance

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"
)

// TestOnlyOurAccountsChangeWhatComesAndGoes is about volumes of a VMI that may run.
func TestOnlyOurAccountsChangeWhatComesAndGoes(t *testing.T) {
	disk := func(bus virtv1.DiskBus, pluggable bool) func(*virtv1.VirtualMachineInstanceSpec) {
		return func(spec *virtv1.VirtualMachineInstanceSpec) {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: "data", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: bus}}})
			source := virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "data", Hotpluggable: pluggable}}
			spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: "data", VolumeSource: source})
		}
	}
	const own = "system:serviceaccount:slipway:virt-api"
	for name, c := range map[string]struct {
		user   string
		change func(*virtv1.VirtualMachineInstanceSpec)
		want   bool
	}{
		"a pluggable disk by virt-api": {own, disk(virtv1.DiskBusSCSI, true), true},
		"the same by a user":           {"jane", disk(virtv1.DiskBusSCSI, true), false},
		"a disk on SATA":               {own, disk(virtv1.DiskBusSATA, true), false},
		"a disk that is to stay":       {own, disk(virtv1.DiskBusSCSI, false), false},
		"the time to power off":        {own, func(s *virtv1.VirtualMachineInstanceSpec) { s.TerminationGracePeriodSeconds = new(int64(5)) }, true},
		"anything else, even virt-api": {own, func(s *virtv1.VirtualMachineInstanceSpec) { s.Hostname = "other" }, false},
		"nothing, by whomever":         {"jane", func(*virtv1.VirtualMachineInstanceSpec) {}, true},
		"a pluggable disk without name": {own, func(s *virtv1.VirtualMachineInstanceSpec) {
			disk(virtv1.DiskBusSCSI, true)(s)
			s.Volumes[0].DataVolume.Name = ""
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &virtv1.VirtualMachineInstance{}
			before.Spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("64Mi"))}
			after := before.DeepCopy()
			c.change(&after.Spec)
			errs := ValidateUpdate(before, after, authenticationv1.UserInfo{Username: c.user}, "slipway")
			if got := len(errs) == 0; got != c.want {
				t.Errorf("allowed: %v: %v", got, errs)
			}
		})
	}
}

func TestWhoChangesARunningGuest(t *testing.T) {
	const own, foreign = "system:serviceaccount:slipway:virt-controller", "system:serviceaccount:default:virt-controller"
	for name, c := range map[string]struct {
		user    string
		change  func(*virtv1.VirtualMachineInstanceSpec)
		refused bool
	}{
		"our own account, its sockets":            {user: own, change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.CPU.Sockets = 3 }},
		"our own account, its memory":             {user: own, change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.Memory.Guest = new(resource.MustParse("128Mi")) }},
		"our own account, beyond its maximum":     {user: own, change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.CPU.Sockets = 5 }, refused: true},
		"our own account, memory beyond its most": {user: own, change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.Memory.Guest = new(resource.MustParse("1Gi")) }, refused: true},
		"our own account, anything else":          {user: own, change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Hostname = "other" }, refused: true},
		"somebody else, its sockets":              {user: foreign, change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.CPU.Sockets = 3 }, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &virtv1.VirtualMachineInstance{}
			before.Spec.Domain.CPU = &virtv1.CPU{Sockets: 2, Cores: 1, Threads: 1, MaxSockets: 4}
			before.Spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("64Mi")), MaxGuest: new(resource.MustParse("256Mi"))}
			after := before.DeepCopy()
			c.change(&after.Spec)
			errs := ValidateUpdate(before, after, authenticationv1.UserInfo{Username: c.user}, "slipway")
			if refused := len(errs) > 0; refused != c.refused {
				t.Errorf("refused: %v (%v), want %v", refused, errs, c.refused)
			}
		})
	}
}
