package createvm

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// sysprepDisk is the name of the sysprep volume.
const sysprepDisk = "sysprepdisk"

func (b *builder) containerDisks() error {
	for i, text := range b.ContainerDisks {
		p, err := read(flagContainerDisk, text, "name", "src", "bootorder")
		if err != nil {
			return err
		}
		if err := p.require("src"); err != nil {
			return err
		}
		name := p.text("name")
		if name == "" {
			name = fmt.Sprintf("%s-containerdisk-%d", b.vm.Name, i)
		}
		order, err := p.bootOrder()
		if err != nil {
			return err
		}
		source := virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: p.text("src")}}
		if err := b.addVolume(flagContainerDisk, virtv1.Volume{Name: name, VolumeSource: source}, order); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) claims() error {
	for _, text := range b.Claims {
		p, err := read(flagClaim, text, "name", "src", "bootorder")
		if err != nil {
			return err
		}
		claim, err := p.localSource("pvc")
		if err != nil {
			return err
		}
		name := p.text("name")
		if name == "" {
			name = claim
		}
		order, err := p.bootOrder()
		if err != nil {
			return err
		}
		source := virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}
		if err := b.addVolume(flagClaim, virtv1.Volume{Name: name, VolumeSource: source}, order); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) sysprep() error {
	if !b.changed(flagSysprep) {
		return nil
	}
	p, err := read(flagSysprep, b.Sysprep, "src", "type")
	if err != nil {
		return err
	}
	name, err := p.localSource("configmap or secret")
	if err != nil {
		return err
	}
	source := &virtv1.SysprepSource{}
	switch strings.ToLower(p.text("type")) {
	case "", "configmap":
		source.ConfigMap = &corev1.LocalObjectReference{Name: name}
	case "secret":
		source.Secret = &corev1.LocalObjectReference{Name: name}
	default:
		return p.errorf("invalid sysprep source type %q, supported values are: configmap, secret", p.text("type"))
	}
	return b.addVolume(flagSysprep, virtv1.Volume{Name: sysprepDisk, VolumeSource: virtv1.VolumeSource{Sysprep: source}}, nil)
}
