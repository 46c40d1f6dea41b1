package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// What a disk that is to leave waits for.
const (
	waitsForGuest = "waiting for the guest to let go of the disk"
	guestRefused  = "the guest refused to let go of the disk; unmount it in the guest"
	waitsForCopy  = "waiting for the end of the backup that the disk is in"
)

// plugs are the disks that came while the guest ran.
type plugs struct {
	// changing is held while disks come or go, one at a time.
	changing sync.Mutex
	// files are the volumes that came from other pods, by name; QEMU has what is on them
	// open by their number. Only the machine's goroutine changes them.
	files map[string]*os.File
	// loans are those of them that QEMU has itself.
	loans map[string]*loan
	// lent is how many there were; whoever has changing counts.
	lent int
}

// plug gives the guest a disk. One that it has already is left as it is.
func (m *machine) plug(ctx context.Context, request wire.Request, _ protocol.State) (any, error) {
	var wanted protocol.Plug
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	if wanted.VMI == nil || string(wanted.VMI.UID) != m.options.UID {
		return nil, fmt.Errorf("the disk is not for VMI %s/%s (uid %s) of this pod", m.options.Namespace, m.options.Name, m.options.UID)
	}
	if len(request.Files) > 1 {
		return nil, fmt.Errorf("a disk comes with one file at most, and %d came", len(request.Files))
	}
	m.plugs.changing.Lock()
	defer m.plugs.changing.Unlock()
	state, err := m.alive(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(state.Disks, named(wanted.Volume)) {
		return state, nil
	}
	file, prepared, err := preparePlug(wanted, request.Files)
	if err != nil {
		return nil, fmt.Errorf("preparing volume %s: %w", wanted.Volume, err)
	}
	prepared.Preallocated = wanted.Preallocated
	given := m.newLoan(file, prepared)
	disk, err := m.attach(wanted, prepared, given)
	if err != nil {
		given.end()
		closeAll(file)
		return nil, err
	}
	err = m.do(ctx, func(context.Context) {
		m.plugged(disk, file, given)
		state = m.state
	})
	return state, err
}

// preparePlug finds the disk on the volume that came, or on the one that the pod has. The file that it
// returns stays open for as long as the guest has the disk.
func preparePlug(wanted protocol.Plug, files []*os.File) ([]*os.File, disks.Disk, error) {
	volumes := wanted.VMI.Spec.Volumes
	i := slices.IndexFunc(volumes, func(volume v1.Volume) bool { return volume.Name == wanted.Volume })
	if i < 0 {
		return nil, disks.Disk{}, errors.New("it is not in spec.volumes: add it")
	}
	if len(files) == 0 {
		prepared, err := disks.Claim(disks.PodPaths(""), wanted.VMI, &volumes[i], wanted.ClaimSize)
		return nil, prepared, err
	}
	kept, err := duplicate(files[0])
	if err != nil {
		return nil, disks.Disk{}, err
	}
	prepared, err := disks.Plugged(kept, wanted.VMI, &volumes[i], wanted.ClaimSize)
	if err != nil {
		closeAll([]*os.File{kept})
		return nil, disks.Disk{}, err
	}
	return []*os.File{kept}, prepared, nil
}

// attach gives libvirt the disk, or the disc for its drive. What QEMU may not open itself it gets by loan.
func (m *machine) attach(wanted protocol.Plug, prepared disks.Disk, given *loan) (protocol.Disk, error) {
	targets, err := m.hv.Disks()
	if err != nil {
		return protocol.Disk{}, err
	}
	alias := domain.AliasPrefix + wanted.Volume
	out := protocol.Disk{Volume: wanted.Volume, Target: targets[alias], Size: prepared.Size, Claim: claimOf(wanted)}
	if domain.IsDrive(wanted.VMI, wanted.Volume) {
		m.log.Info("Giving the guest a disc", "volume", wanted.Volume)
		return out, m.insert(alias, prepared.Image, given)
	}
	spec, err := domain.Plug(wanted.VMI, wanted.Volume, prepared.Disk, slices.Collect(maps.Values(targets)))
	if err != nil {
		return out, err
	}
	if given != nil {
		if spec.Source, err = given.begin(spec.Driver.Cache, prepared.Image); err != nil {
			return out, err
		}
	}
	m.log.Info("Giving the guest a disk", "volume", wanted.Volume, "target", spec.Target.Dev)
	out.Target = spec.Target.Dev
	return out, m.hv.Attach(spec)
}

// claimOf is the claim that a disk comes from.
func claimOf(wanted protocol.Plug) string {
	for _, volume := range wanted.VMI.Spec.Volumes {
		switch {
		case volume.Name != wanted.Volume:
		case volume.PersistentVolumeClaim != nil:
			return volume.PersistentVolumeClaim.ClaimName
		case volume.DataVolume != nil:
			return volume.DataVolume.Name
		}
	}
	return ""
}

// plugged takes in a disk that the guest got.
func (m *machine) plugged(disk protocol.Disk, file []*os.File, given *loan) {
	if len(file) > 0 {
		m.plugs.files[disk.Volume] = file[0]
	}
	if given != nil {
		m.plugs.loans[disk.Volume] = given
	}
	m.state.Disks = append(slices.Clone(m.state.Disks), disk)
	m.link.Publish(m.state)
}

// unplug asks the guest to let go of a disk. It may be asked for again, for a guest may not listen.
func (m *machine) unplug(ctx context.Context, request wire.Request, _ protocol.State) (any, error) {
	var wanted protocol.Unplug
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	m.plugs.changing.Lock()
	defer m.plugs.changing.Unlock()
	state, err := m.alive(ctx)
	if err != nil || !slices.ContainsFunc(state.Disks, named(wanted.Volume)) {
		return nil, err
	}
	if inBackup(state, wanted.Volume) { // it is asked for again
		return nil, m.do(ctx, func(context.Context) { m.leaving(wanted.Volume, waitsForCopy) })
	}
	m.log.Info("Taking a disk from the guest", "volume", wanted.Volume)
	if err := m.do(ctx, func(context.Context) { m.leaving(wanted.Volume, waitsForGuest) }); err != nil {
		return nil, err
	}
	take := m.detach
	if wanted.VMI != nil && domain.IsDrive(wanted.VMI, wanted.Volume) {
		take = m.eject
	}
	if err := take(ctx, wanted); err != nil {
		return nil, m.do(ctx, func(context.Context) { m.leaving(wanted.Volume, waitsForGuest+": "+err.Error()) })
	}
	return nil, nil
}

// detach asks for the disk; an event tells when it has left.
func (m *machine) detach(_ context.Context, wanted protocol.Unplug) error {
	return m.hv.Detach(domain.AliasPrefix + wanted.Volume)
}

// eject takes the disc out of its drive, which a guest that uses it keeps shut.
func (m *machine) eject(ctx context.Context, wanted protocol.Unplug) error {
	alias := domain.AliasPrefix + wanted.Volume
	if err := m.hv.Insert(alias, nil); err != nil {
		return err
	}
	return m.do(ctx, func(context.Context) { m.unplugged(alias) })
}

// leaving notes why a disk that is to leave has not.
func (m *machine) leaving(volume, message string) {
	disks := slices.Clone(m.state.Disks)
	i := slices.IndexFunc(disks, named(volume))
	if i < 0 || disks[i].Leaving && disks[i].Message == message {
		return
	}
	disks[i].Leaving, disks[i].Message = true, message
	m.state.Disks = disks
	m.link.Publish(m.state)
}

// unplugged lets go of what is behind a disk that has left.
func (m *machine) unplugged(alias string) {
	volume, ours := strings.CutPrefix(alias, domain.AliasPrefix)
	if !ours || !slices.ContainsFunc(m.state.Disks, named(volume)) {
		return
	}
	m.log.Info("The guest let go of a disk", "volume", volume)
	if file := m.plugs.files[volume]; file != nil {
		_ = file.Close()
		delete(m.plugs.files, volume)
	}
	if given := m.plugs.loans[volume]; given != nil {
		go given.end() // libvirt may be slow to pass it on, and nothing waits for it
		delete(m.plugs.loans, volume)
	}
	m.state.Disks = slices.DeleteFunc(slices.Clone(m.state.Disks), named(volume))
	m.link.Publish(m.state)
}

// missedUnplugs finds the disks that left while libvirt was away.
func (m *machine) missedUnplugs() {
	targets, err := m.hv.Disks()
	if err != nil {
		m.log.Warn("Failed to look for disks that left while libvirtd was away", "err", err)
		return
	}
	for _, disk := range slices.Clone(m.state.Disks) {
		if alias := domain.AliasPrefix + disk.Volume; targets[alias] == "" {
			m.unplugged(alias)
		}
	}
}

func named(volume string) func(protocol.Disk) bool {
	return func(disk protocol.Disk) bool { return disk.Volume == volume }
}

// duplicate keeps a file that came with a request beyond it.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keeping the volume open: %w", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
