package pool

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/beneath"
	"github.com/slipway-vm/slipway/runtime/hostpath/reflink"
)

// Content is the open data of a volume or snapshot: a directory, or the file of a disk.
type Content struct {
	// Record says what it is.
	Record Record
	// File is the open directory, for reading, or disk, for reading and writing.
	File *os.File
	// OnClaim says that the pool is where the kubelet has a claim mounted. While File is open it cannot unmount that. The driver sets it.
	OnClaim bool
}

// Close releases the data.
func (c *Content) Close() error {
	if err := c.File.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", c.Record.Name, err)
	}
	return nil
}

// OpenVolume opens the data of a volume.
func (p *Pool) OpenVolume(name string) (*Content, error) { return p.open(volumes, name) }

// OpenSnapshot opens the data of a snapshot.
func (p *Pool) OpenSnapshot(name string) (*Content, error) { return p.open(snapshots, name) }

func (p *Pool) open(pl place, name string) (*Content, error) {
	record, err := p.lookup(pl, name)
	if err != nil {
		return nil, err
	}
	flags := os.O_RDONLY | unix.O_DIRECTORY
	if record.Block {
		flags = os.O_RDWR
	}
	file, err := beneath.Open(p.root, pl.path(name), flags)
	if err != nil {
		return nil, fmt.Errorf("opening %s of pool %s: %w", name, p.name, err)
	}
	return &Content{Record: record, File: file}, nil
}

// fill makes target, which does not exist, hold what record asks for, with the data of source if it has one.
// A limited volume of files gets a project, which record then names, or is a subvolume.
func (p *Pool) fill(ctx context.Context, target string, record *Record, limited bool, source *Copy) (reflink.Result, error) {
	if record.Block {
		return p.fillDisk(ctx, target, *record, source)
	}
	if err := p.makeDirectory(target, record, limited); err != nil {
		return reflink.Result{}, err
	}
	if limited && !record.Subvolume {
		project, err := p.restrict(target, *record)
		if err != nil {
			return reflink.Result{}, err
		}
		record.Project = project
	}
	if source != nil {
		result, err := p.fillTree(ctx, target, source)
		return result, p.tooSmall(*record, err)
	}
	// Every user of the pod may write, unless kubelet gives the volume to a group (fsGroup).
	if err := p.root.Chmod(target, 0o777); err != nil {
		return reflink.Result{}, fmt.Errorf("opening %s of pool %s to its users: %w", record.Name, p.name, err)
	}
	return reflink.Result{}, p.sync(target)
}

func (p *Pool) fillTree(ctx context.Context, target string, source *Copy) (reflink.Result, error) {
	dst, err := p.root.OpenRoot(target)
	if err != nil {
		return reflink.Result{}, fmt.Errorf("opening %s of pool %s: %w", target, p.name, err)
	}
	defer dst.Close()
	src, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", source.From.File.Fd()))
	if err != nil {
		return reflink.Result{}, fmt.Errorf("opening %s: %w", source.From.Record.Name, err)
	}
	defer src.Close()
	result, err := reflink.Tree(ctx, dst, src, source.Progress)
	if err != nil {
		return result, fmt.Errorf("copying %s: %w", source.From.Record.Name, err)
	}
	return result, nil
}

func (p *Pool) fillDisk(ctx context.Context, target string, record Record, source *Copy) (reflink.Result, error) {
	var result reflink.Result
	disk, err := p.root.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return result, fmt.Errorf("making %s of pool %s: %w", record.Name, p.name, err)
	}
	defer disk.Close()
	if source != nil {
		method, err := reflink.File(ctx, disk, source.From.File, func(n int64) {
			result.Bytes += n
			if source.Progress != nil {
				source.Progress(n)
			}
		})
		if err != nil {
			return result, fmt.Errorf("copying %s: %w", source.From.Record.Name, err)
		}
		result.Add(method)
	}
	if err := disk.Truncate(record.Capacity); err != nil {
		return result, fmt.Errorf("sizing %s of pool %s: %w", record.Name, p.name, err)
	}
	if err := disk.Sync(); err != nil {
		return result, errors.Join(fmt.Errorf("syncing %s of pool %s: %w", record.Name, p.name, err))
	}
	return result, nil
}
