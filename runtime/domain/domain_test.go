package domain_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// testCase is a test case's input, in YAML.
type testCase struct {
	VMI        *v1.VirtualMachineInstance `json:"vmi"`
	KVM        bool                       `json:"kvm"`
	Disks      map[string]domain.Disk     `json:"disks"`
	Interfaces []protocol.Interface       `json:"interfaces"`
	Kernel     domain.Kernel              `json:"kernel"`
	CPUs       []domain.HostCPU           `json:"cpus"`
	SMBIOS     *v1.SMBiosConfiguration    `json:"smbios"`
	Options    *v1.VirtualMachineOptions  `json:"options"`
	Balloon    *uint32                    `json:"balloonPeriod"`
	// WantError is a part of the error's text; empty for a domain.
	WantError string `json:"wantError"`
}

func (f testCase) input() domain.Input {
	const private = "/var/run/kubevirt-private/uid/"
	return domain.Input{
		VMI: f.VMI, KVM: f.KVM, Disks: f.Disks, Interfaces: f.Interfaces, Kernel: f.Kernel, CPUs: f.CPUs, SMBIOS: f.SMBIOS, Options: f.Options, BalloonPeriod: f.Balloon,
		SecretsDir: "/var/run/kubevirt-private/secret", FilesystemSockets: private + "virt-fs-",
		Console:   domain.Console{Socket: private + "virt-serial0", Log: private + "virt-serial0-pipe"},
		VNCSocket: private + "virt-vnc", USBSockets: private + "virt-usbredir-", MetricsSocket: private + "virt-downwardmetrics",
		Firmware: domain.DebianFirmware(private + "nvram.fd"),
		StateDir: "/var/run/kubevirt-private/vm-state",
		Now:      time.Date(2026, time.January, 15, 12, 0, 0, 0, time.UTC),
	}
}

func TestBuild(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("found no cases: %v", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var in testCase
			if err := yaml.UnmarshalStrict(data, &in); err != nil {
				t.Fatal(err)
			}
			built, err := domain.Build(in.input())
			if in.WantError != "" {
				if err == nil || !strings.Contains(err.Error(), in.WantError) {
					t.Fatalf("error %v, want one with %q", err, in.WantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			document, err := built.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, strings.TrimSuffix(path, ".yaml")+".xml", document+"\n")
		})
	}
}

func TestNameOfLongObjectsStaysAFileName(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = strings.Repeat("n", 63), strings.Repeat("v", 253)
	long := domain.Name(vmi)
	vmi.Name = strings.Repeat("v", 252) + "w"
	if len(long) > 200 || long == domain.Name(vmi) {
		t.Errorf("names %q and %q are too long or the same", long, domain.Name(vmi))
	}
	vmi.Namespace, vmi.Name = "default", "web"
	if got := domain.Name(vmi); got != "default_web" {
		t.Errorf("name %q, want default_web", got)
	}
}
