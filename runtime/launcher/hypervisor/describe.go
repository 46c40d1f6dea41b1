package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/processor"
)

// Describe writes what libvirt knows of this node's processor into the folder into, for virt-handler, which has no
// libvirt. kvm says whether guests can have KVM here. ctx ends it when libvirt hangs.
func Describe(ctx context.Context, options Options, kvm bool, into string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := New(options)
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	answers, err := h.describe(ctx, kvm)
	cancel()
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	for name, answer := range answers {
		if err := os.WriteFile(filepath.Join(into, name), []byte(answer), 0o644); err != nil {
			return fmt.Errorf("keeping what libvirt knows of the processor: %w", err)
		}
	}
	return nil
}

// describe asks libvirt, for documents by the names of their files.
func (h *Hypervisor) describe(ctx context.Context, kvm bool) (map[string]string, error) {
	conn, err := h.connected(ctx)
	if err != nil {
		return nil, err
	}
	kind := kindOf(kvm)
	able, err := conn.GetDomainCapabilities(domain.Emulator, "x86_64", "q35", kind, 0)
	if err != nil {
		return nil, fmt.Errorf("asking libvirt for the abilities of domains of the type %s: %w", kind, plain(err))
	}
	host, err := conn.GetCapabilities()
	if err != nil {
		return nil, fmt.Errorf("asking libvirt for the abilities of the host: %w", plain(err))
	}
	answers := map[string]string{processor.DomainFile: able, processor.HostFile: host}
	model, err := hostModel(able)
	if err != nil || model == "" {
		return answers, err
	}
	whole, err := conn.BaselineHypervisorCPU(domain.Emulator, "x86_64", "q35", kind, []string{model}, libvirt.CONNECT_BASELINE_CPU_EXPAND_FEATURES)
	if err != nil {
		return nil, fmt.Errorf("asking libvirt for the features of the host's model: %w", plain(err))
	}
	answers[processor.FeaturesFile] = whole
	return answers, nil
}

// kindOf is libvirt's type of domains with KVM, and without.
func kindOf(kvm bool) string {
	if kvm {
		return "kvm"
	}
	return "qemu"
}

// hostModel is the model nearest to the host's processor, of the abilities of domains, as a processor of its own;
// empty where there is none.
func hostModel(abilities string) (string, error) {
	read := &libvirtxml.DomainCaps{}
	if err := read.Unmarshal(abilities); err != nil {
		return "", fmt.Errorf("reading the abilities of domains: %w", err)
	}
	if read.CPU == nil {
		return "", nil
	}
	for _, mode := range read.CPU.Modes {
		if mode.Name != "host-model" || mode.Supported != "yes" || len(mode.Models) == 0 {
			continue
		}
		cpu := &libvirtxml.DomainCPU{
			Mode: "custom", Match: "exact", Vendor: mode.Vendor,
			Model: &libvirtxml.DomainCPUModel{Value: mode.Models[0].Name, Fallback: mode.Models[0].Fallback},
		}
		for _, f := range mode.Features {
			cpu.Features = append(cpu.Features, libvirtxml.DomainCPUFeature(f))
		}
		document, err := cpu.Marshal()
		if err != nil {
			return "", fmt.Errorf("writing the host's model: %w", err)
		}
		return document, nil
	}
	return "", nil
}
