package vmi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/process"
	"github.com/slipway-vm/slipway/runtime/network"
	"github.com/slipway-vm/slipway/runtime/network/podnet"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// giveDevices lets the launcher's user open the device files of its container.
func giveDevices(s *scope) error {
	paths := append([]string{"/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock"}, volume.BlockDevices(s.pod)...)
	for _, path := range paths {
		_, err := s.view.Launcher.GiveDevice(path, names.QEMUUser)
		if err != nil && !errors.Is(err, process.ErrSharedDevice) {
			return fmt.Errorf("preparing devices of VMI %s: %w", s.vmi.Name, err)
		}
	}
	return nil
}

// allowRealtime lets libvirt put processors of the guest before all else that runs on theirs.
func allowRealtime(s *scope) error {
	if !dedicated.Realtime(s.vmi) {
		return nil
	}
	if err := process.AllowRealtime(s.pod.UID); err != nil {
		return fmt.Errorf("preparing the processors of VMI %s: %w", s.vmi.Name, err)
	}
	return nil
}

// connect brings the pod's network namespace to the VMI's plan.
func connect(s *scope) (network.Plan, string, error) {
	if len(s.vmi.Spec.Domain.Devices.Interfaces) == 0 {
		return network.Plan{}, "", nil
	}
	namespace, err := s.view.Launcher.NetworkNamespace()
	if err != nil {
		return network.Plan{}, "", err
	}
	defer namespace.Close()
	pod, err := podnet.Inspect(namespace)
	if err != nil {
		return network.Plan{}, "", err
	}
	resolver, err := s.view.Launcher.Resolver()
	if err != nil {
		return network.Plan{}, "", err
	}
	pod.DNS, pod.Search = resolver.Nameservers, resolver.Search
	plan, err := network.New(s.vmi, pod)
	if err != nil {
		return network.Plan{}, "", err
	}
	return plan, pod.Interface, podnet.Apply(namespace, plan)
}

// requestsKVM says whether the pod has hardware virtualization; virt-controller leaves
// it out only where emulation is allowed.
func requestsKVM(pod *corev1.Pod) bool {
	for _, container := range pod.Spec.Containers {
		if _, found := container.Resources.Limits[names.DeviceKVM]; found {
			return true
		}
	}
	return false
}

// claimFacts are the capacities in bytes of the VMI's Filesystem claims, by volume, and the volumes whose
// claims keep all of their size.
func (r *Reconciler) claimFacts(ctx context.Context, vmi *v1.VirtualMachineInstance) (sizes map[string]int64, preallocated []string, err error) {
	sizes = map[string]int64{}
	for name, claimName := range volume.Claims(vmi) {
		claim := &corev1.PersistentVolumeClaim{}
		if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: claimName}, claim); err != nil {
			return nil, nil, fmt.Errorf("getting claim %s of volume %s: %w", claimName, name, err)
		}
		if volume.Preallocated(claim) {
			preallocated = append(preallocated, name)
		}
		if mode := claim.Spec.VolumeMode; mode == nil || *mode == corev1.PersistentVolumeFilesystem {
			sizes[name] = claim.Status.Capacity.Storage().Value()
		}
	}
	slices.Sort(preallocated)
	return sizes, preallocated, nil
}
