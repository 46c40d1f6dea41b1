package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// graphics is a screen, served as VNC on a unix socket.
func graphics(in Input, domain *libvirtxml.Domain) error {
	if !hasGraphics(in.VMI) {
		domain.Devices.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "none"}}}
		return nil
	}
	listen := libvirtxml.DomainGraphicListener{Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: in.VNCSocket}}
	vnc := &libvirtxml.DomainGraphicVNC{Listeners: []libvirtxml.DomainGraphicListener{listen}}
	domain.Devices.Graphics = []libvirtxml.DomainGraphic{{VNC: vnc}}
	model := libvirtxml.DomainVideoModel{Type: videoType(in.VMI), Heads: 1}
	if model.Type == "vga" || model.Type == "bochs" {
		model.VRam = 16384
	}
	domain.Devices.Videos = []libvirtxml.DomainVideo{{Model: model}}
	return nil
}

func hasGraphics(vmi *v1.VirtualMachineInstance) bool {
	return enabled(vmi.Spec.Domain.Devices.AutoattachGraphicsDevice)
}

// videoType is the card asked for; by default the plainest that the firmware draws on.
func videoType(vmi *v1.VirtualMachineInstance) string {
	if video := vmi.Spec.Domain.Devices.Video; video != nil && video.Type != "" {
		return video.Type
	}
	if bootsEFI(vmi) {
		return "bochs"
	}
	return "vga"
}
