package launcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/launcher/virtiofs"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// shares are the folders of the VMI's filesystems, in its order.
func shares(vmi *v1.VirtualMachineInstance, paths disks.Paths, sockets string) ([]virtiofs.Share, error) {
	var all []virtiofs.Share
	for i, filesystem := range vmi.Spec.Domain.Devices.Filesystems {
		at := slices.IndexFunc(vmi.Spec.Volumes, func(volume v1.Volume) bool { return volume.Name == filesystem.Name })
		if at < 0 {
			return nil, fmt.Errorf("filesystem %s has no volume: add one of that name to spec.volumes", filesystem.Name)
		}
		share := virtiofs.Share{Name: filesystem.Name, Socket: domain.FilesystemSocket(sockets, i)}
		switch volume := &vmi.Spec.Volumes[at]; {
		case volume.ConfigMap != nil, volume.Secret != nil, volume.ServiceAccount != nil, volume.DownwardAPI != nil:
			share.Dir, share.ReadOnly = filepath.Join(paths.Secrets, volume.Name), true // it is the kubelet who writes
		case volume.PersistentVolumeClaim != nil:
			share.Dir, share.ReadOnly = filepath.Join(paths.Claims, volume.Name), volume.PersistentVolumeClaim.ReadOnly
		case volume.DataVolume != nil:
			share.Dir = filepath.Join(paths.Claims, volume.Name)
		default:
			return nil, fmt.Errorf("filesystem %s: its volume is no folder; use configMap, secret, serviceAccount, downwardAPI, persistentVolumeClaim or dataVolume", filesystem.Name)
		}
		all = append(all, share)
	}
	return all, nil
}

// startFilesystems starts who serves the VMI's filesystems. Earlier ones, of a start that came to nothing, end before.
func (m *machine) startFilesystems(vmi *v1.VirtualMachineInstance) error {
	m.stopFilesystems()
	all, err := shares(vmi, m.paths(), filepath.Join(m.options.own(), socketsFilesystem))
	if err != nil {
		return err
	}
	for _, share := range all {
		server, err := virtiofs.Start(m.children, virtiofs.Program, share, m.log)
		if err != nil {
			m.stopFilesystems()
			return err //nolint:wrapcheck // it names the filesystem
		}
		m.servers = append(m.servers, server)
	}
	return nil
}

// stopFilesystems ends those who serve them.
func (m *machine) stopFilesystems() {
	for _, server := range m.servers {
		if err := server.Stop(); err != nil {
			m.log.Warn("Failed to clean up after a filesystem's server", "filesystem", server.Name, "err", err)
		}
	}
	m.servers = nil
}

// startDomain starts the domain. Where that fails, the servers of its filesystems are of no use
// any more; one that has failed itself is likely to be why.
func (m *machine) startDomain(ctx context.Context, spec *libvirtxml.Domain, plan hypervisor.Plan) (hypervisor.Started, error) {
	started, err := m.domain.Start(ctx, spec, plan)
	if err == nil {
		return started, nil
	}
	for _, server := range m.servers {
		err = errors.Join(err, server.Failure())
	}
	m.stopFilesystems()
	return hypervisor.Started{}, err
}

// keepFilesystems notes the folders that the guest has, and watches over those who serve them.
func (m *machine) keepFilesystems(ctx context.Context) {
	m.state.Filesystems = nil
	for _, server := range m.servers {
		m.state.Filesystems = append(m.state.Filesystems, protocol.Filesystem{Volume: server.Name})
		go m.watchServer(ctx, server, m.qemu)
	}
}

// watchServer tells when a server ends before QEMU does, after which it ends by itself. QEMU does
// not connect again, so a new server would be of no use.
func (m *machine) watchServer(ctx context.Context, server *virtiofs.Server, qemu int) {
	select {
	case <-ctx.Done():
		return
	case <-server.Ended():
	}
	patience, cancel := context.WithTimeout(ctx, endingPatience)
	defer cancel()
	if _, gone := m.endings.await(patience, qemu); gone || ctx.Err() != nil {
		return
	}
	_ = m.do(ctx, func(context.Context) { m.lost(server) }) // fails only at the end
}

// lost tells that the guest waits in vain for a filesystem.
func (m *machine) lost(server *virtiofs.Server) {
	if m.over() {
		return
	}
	how := server.How()
	m.log.Error("A filesystem of the guest is not served any more", "how", how)
	all := slices.Clone(m.state.Filesystems)
	for i := range all {
		if all[i].Volume == server.Name {
			all[i].Message = how + "; the guest's access to it stands still: restart the virtual machine"
		}
	}
	m.state.Filesystems = all
	m.link.Publish(m.state)
}
