package instancetype

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

func medium() *v1beta1.VirtualMachineInstancetypeSpec {
	return &v1beta1.VirtualMachineInstancetypeSpec{
		CPU: v1beta1.CPUInstancetype{Guest: 4}, Memory: v1beta1.MemoryInstancetype{Guest: resource.MustParse("8Gi")},
		NodeSelector: map[string]string{"disk": "fast"},
	}
}

func TestConflictsNameEveryFieldThatBothSet(t *testing.T) {
	guest := resource.MustParse("1Gi")
	for name, c := range map[string]struct {
		change func(*virtv1.VirtualMachineInstanceSpec)
		want   []string
	}{
		"nothing set":                          {func(*virtv1.VirtualMachineInstanceSpec) {}, nil},
		"cores and threads":                    {func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.CPU = &virtv1.CPU{Cores: 1, Threads: 1} }, []string{"spec.domain.cpu.cores", "spec.domain.cpu.threads"}},
		"a CPU model, which is ours to choose": {func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.CPU = &virtv1.CPU{Model: "Skylake"} }, nil},
		"guest memory":                         {func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.Memory = &virtv1.Memory{Guest: &guest} }, []string{"spec.domain.memory.guest"}},
		"a memory limit": {func(s *virtv1.VirtualMachineInstanceSpec) {
			s.Domain.Resources.Limits = corev1.ResourceList{"memory": guest}
		}, []string{"spec.domain.resources.limits.memory"}},
		"another node selector":  {func(s *virtv1.VirtualMachineInstanceSpec) { s.NodeSelector = map[string]string{"zone": "a"} }, nil},
		"the same node selector": {func(s *virtv1.VirtualMachineInstanceSpec) { s.NodeSelector = map[string]string{"disk": "slow"} }, []string{"spec.nodeSelector[disk]"}},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{}
			c.change(&vmi.Spec)
			var got []string
			for _, err := range Apply(vmi, medium(), nil, field.NewPath("spec")) {
				got = append(got, err.Field)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTopology(t *testing.T) {
	prefer := func(topology v1beta1.PreferredCPUTopology, across v1beta1.SpreadAcross, ratio uint32) *v1beta1.VirtualMachinePreferenceSpec {
		p := &v1beta1.VirtualMachinePreferenceSpec{CPU: &v1beta1.CPUPreferences{PreferredCPUTopology: &topology}}
		if across != "" {
			p.CPU.SpreadOptions = &v1beta1.SpreadOptions{Across: &across, Ratio: new(ratio)}
		}
		return p
	}
	for name, c := range map[string]struct {
		guest      uint32
		preference *v1beta1.VirtualMachinePreferenceSpec
		want       [3]uint32
	}{
		"sockets without a wish":           {4, nil, [3]uint32{4, 1, 1}},
		"cores":                            {4, prefer(v1beta1.Cores, "", 0), [3]uint32{1, 4, 1}},
		"the old word for threads":         {4, prefer(v1beta1.DeprecatedPreferThreads, "", 0), [3]uint32{1, 1, 4}},
		"any is sockets":                   {4, prefer(v1beta1.Any, "", 0), [3]uint32{4, 1, 1}},
		"spread over sockets and cores":    {6, prefer(v1beta1.Spread, "", 0), [3]uint32{3, 2, 1}},
		"spread by a ratio":                {8, prefer(v1beta1.Spread, v1beta1.SpreadAcrossSocketsCores, 4), [3]uint32{2, 4, 1}},
		"spread over cores and threads":    {8, prefer(v1beta1.Spread, v1beta1.SpreadAcrossCoresThreads, 2), [3]uint32{1, 4, 2}},
		"spread over all three":            {8, prefer(v1beta1.Spread, v1beta1.SpreadAcrossSocketsCoresThreads, 2), [3]uint32{2, 2, 2}},
		"what does not divide stays whole": {5, prefer(v1beta1.Spread, "", 0), [3]uint32{5, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			sockets, cores, threads := topology(c.guest, c.preference)
			if got := [3]uint32{sockets, cores, threads}; got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if sockets*cores*threads != c.guest {
				t.Errorf("%d virtual CPUs, want %d", sockets*cores*threads, c.guest)
			}
		})
	}
}

// The input that a guest gets without asking is as the preference describes it, where there is one.
func TestAnAttachedInputIsAsThePreferenceDescribesIt(t *testing.T) {
	tablet := &v1beta1.DevicePreferences{
		PreferredAutoattachInputDevice: new(true), PreferredInputBus: virtv1.InputBusVirtio, PreferredInputType: virtv1.InputTypeTablet,
	}
	for name, c := range map[string]struct {
		devices    virtv1.Devices
		preference *v1beta1.DevicePreferences
		want       []virtv1.Input
	}{
		"described":                  {preference: tablet, want: []virtv1.Input{{Name: "default-0", Bus: "virtio", Type: "tablet"}}},
		"described by none":          {preference: &v1beta1.DevicePreferences{PreferredAutoattachInputDevice: new(true)}},
		"the VM wants none":          {devices: virtv1.Devices{AutoattachInputDevice: new(false)}, preference: tablet},
		"the VM has no screen":       {devices: virtv1.Devices{AutoattachGraphicsDevice: new(false)}, preference: tablet},
		"the VM has one of its own":  {devices: virtv1.Devices{Inputs: []virtv1.Input{{Name: "own", Bus: "usb"}}}, preference: tablet, want: []virtv1.Input{{Name: "own", Bus: "usb", Type: "tablet"}}},
		"the VM alone wants to have": {devices: virtv1.Devices{AutoattachInputDevice: new(true)}, preference: &v1beta1.DevicePreferences{PreferredInputBus: "virtio"}, want: []virtv1.Input{{Name: "default-0", Bus: "virtio"}}},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{Spec: virtv1.VirtualMachineInstanceSpec{Domain: virtv1.DomainSpec{Devices: c.devices}}}
			if errs := Apply(vmi, nil, &v1beta1.VirtualMachinePreferenceSpec{Devices: c.preference}, field.NewPath("spec")); len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := vmi.Spec.Domain.Devices.Inputs; !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A preference fills what is unset and changes nothing else.
func TestAPreferenceNeverOverridesTheVM(t *testing.T) {
	p := &v1beta1.VirtualMachinePreferenceSpec{
		Devices: &v1beta1.DevicePreferences{
			PreferredDiskBus: virtv1.DiskBusVirtio, PreferredCdromBus: virtv1.DiskBusSATA, PreferredInterfaceModel: "virtio",
			PreferredAutoattachGraphicsDevice: new(false), PreferredRng: &virtv1.Rng{}, PreferredDiskCache: virtv1.CacheNone,
		},
		Features:                               &v1beta1.FeaturePreferences{PreferredSmm: &virtv1.FeatureState{}},
		Firmware:                               &v1beta1.FirmwarePreferences{PreferredEfi: &virtv1.EFI{SecureBoot: new(true)}},
		Machine:                                &v1beta1.MachinePreferences{PreferredMachineType: "pc-q35-9.2"},
		PreferredTerminationGracePeriodSeconds: ptr.To[int64](60),
		Annotations:                            map[string]string{"a": "preference", "b": "preference"},
	}
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Annotations = map[string]string{"a": "vm"}
	spec := &vmi.Spec
	spec.Domain.Machine = &virtv1.Machine{Type: "q35"}
	spec.Domain.Devices = virtv1.Devices{
		AutoattachGraphicsDevice: new(true),
		Disks: []virtv1.Disk{
			{Name: "own", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusSATA}}},
			{Name: "open"},
			{Name: "cd", DiskDevice: virtv1.DiskDevice{CDRom: &virtv1.CDRomTarget{}}, Cache: virtv1.CacheWriteBack},
		},
		Interfaces: []virtv1.Interface{{Name: "own", Model: "e1000"}, {Name: "open"}},
	}
	if errs := Apply(vmi, nil, p, field.NewPath("spec")); len(errs) > 0 {
		t.Fatal(errs)
	}
	d := spec.Domain.Devices
	for what, holds := range map[string]bool{
		"the VM's machine type stays":         spec.Domain.Machine.Type == "q35",
		"the VM's graphics stay":              *d.AutoattachGraphicsDevice,
		"the VM's bus stays":                  d.Disks[0].Disk.Bus == virtv1.DiskBusSATA,
		"an open disk gets the preferred bus": d.Disks[1].Disk != nil && d.Disks[1].Disk.Bus == virtv1.DiskBusVirtio,
		"a cdrom gets its own":                d.Disks[2].CDRom.Bus == virtv1.DiskBusSATA,
		"the VM's cache stays":                d.Disks[2].Cache == virtv1.CacheWriteBack && d.Disks[1].Cache == virtv1.CacheNone,
		"the VM's card stays":                 d.Interfaces[0].Model == "e1000" && d.Interfaces[1].Model == "virtio",
		"a random generator is added":         d.Rng != nil,
		"firmware is chosen":                  spec.Domain.Firmware.Bootloader.EFI != nil && spec.Domain.Features.SMM != nil,
		"the grace period is filled":          *spec.TerminationGracePeriodSeconds == 60,
		"annotations are merged":              vmi.Annotations["a"] == "vm" && vmi.Annotations["b"] == "preference",
	} {
		if !holds {
			t.Errorf("not so: %s", what)
		}
	}
}

func TestUnmetRequirementsAreErrors(t *testing.T) {
	p := &v1beta1.VirtualMachinePreferenceSpec{Requirements: &v1beta1.PreferenceRequirements{
		CPU: &v1beta1.CPUPreferenceRequirement{Guest: 8}, Memory: &v1beta1.MemoryPreferenceRequirement{Guest: resource.MustParse("16Gi")},
	}}
	if errs := Apply(&virtv1.VirtualMachineInstance{}, medium(), p, field.NewPath("spec")); len(errs) != 2 {
		t.Errorf("got %v", errs)
	}
}

func TestOvercommitLowersTheRequest(t *testing.T) {
	it := medium()
	it.Memory.OvercommitPercent = 25
	vmi := &virtv1.VirtualMachineInstance{}
	if errs := Apply(vmi, it, nil, field.NewPath("spec")); len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := vmi.Spec.Domain.Resources.Requests[corev1.ResourceMemory]; got.String() != "6Gi" {
		t.Errorf("requests %s", got.String())
	}
}
