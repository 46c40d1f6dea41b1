package createvm

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/flagparams"
)

// sysprepDisk is the name of the sysprep volume.
const sysprepDisk = "sysprepdisk"

func (b *builder) containerDisks() error {
	for i, text := range b.ContainerDisks {
		p, err := flagparams.Read(flagContainerDisk, text, "name", "src", "bootorder")
		if err != nil {
			return err
		}
		if err := p.Require("src"); err != nil {
			return err
		}
		name := p.Text("name")
		if name == "" {
			name = fmt.Sprintf("%s-containerdisk-%d", b.vm.Name, i)
		}
		order, err := p.BootOrder()
		if err != nil {
			return err
		}
		source := virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: p.Text("src")}}
		if err := b.addVolume(flagContainerDisk, virtv1.Volume{Name: name, VolumeSource: source}, order); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) claims() error {
	for _, text := range b.Claims {
		p, err := flagparams.Read(flagClaim, text, "name", "src", "bootorder")
		if err != nil {
			return err
		}
		claim, err := p.LocalSource("pvc")
		if err != nil {
			return err
		}
		name := p.Text("name")
		if name == "" {
			name = claim
		}
		order, err := p.BootOrder()
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
	p, err := flagparams.Read(flagSysprep, b.Sysprep, "src", "type")
	if err != nil {
		return err
	}
	name, err := p.LocalSource("configmap or secret")
	if err != nil {
		return err
	}
	source := &virtv1.SysprepSource{}
	switch strings.ToLower(p.Text("type")) {
	case "", "configmap":
		source.ConfigMap = &corev1.LocalObjectReference{Name: name}
	case "secret":
		source.Secret = &corev1.LocalObjectReference{Name: name}
	default:
		return p.Errorf("invalid sysprep source type %q, supported values are: configmap, secret", p.Text("type"))
	}
	return b.addVolume(flagSysprep, virtv1.Volume{Name: sysprepDisk, VolumeSource: virtv1.VolumeSource{Sysprep: source}}, nil)
}
