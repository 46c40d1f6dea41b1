package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/reflink"
)

// Copy is what a new volume or snapshot gets its data from.
type Copy struct {
	// From is the open data.
	From *Content
	// Progress, which may be nil, hears the bytes that an honest copy moves.
	Progress func(bytes int64)
}

// CreateVolume makes the volume that record describes, with the data of source, which may
// be nil and of another pool. The same volume made before is no error; ErrDiffers when
// it was made for another request, ErrTooSmall when source is larger, ErrInUse when it was written to meanwhile.
func (p *Pool) CreateVolume(ctx context.Context, record Record, source *Copy) (Record, reflink.Result, error) {
	return p.create(ctx, volumes, record, source)
}

// CreateSnapshot makes a snapshot called name of source, with the same rules as CreateVolume.
func (p *Pool) CreateSnapshot(ctx context.Context, name string, source *Copy) (Record, reflink.Result, error) {
	from := source.From.Record
	record := Record{Name: name, Block: from.Block, Capacity: from.Capacity, Source: VolumeSource(from.Name)}
	return p.create(ctx, snapshots, record, source)
}

// DeleteVolume removes a volume and its data. A volume that is not there is no error.
func (p *Pool) DeleteVolume(name string) error { return p.delete(volumes, name) }

// DeleteSnapshot removes a snapshot. Volumes made from it keep their data.
func (p *Pool) DeleteSnapshot(name string) error { return p.delete(snapshots, name) }

func (p *Pool) create(ctx context.Context, pl place, record Record, source *Copy) (Record, reflink.Result, error) {
	var result reflink.Result
	found, err := p.lookup(pl, record.Name)
	if err == nil && !found.satisfies(record) {
		return found, result, fmt.Errorf("creating %s in pool %s: %w", record.Name, p.name, ErrDiffers)
	}
	if !errors.Is(err, ErrNotFound) {
		return found, result, err
	}
	if err := fits(record, source); err != nil {
		return record, result, fmt.Errorf("creating %s in pool %s: %w", record.Name, p.name, err)
	}
	if err := p.prepare(newDir, pl.data, pl.records); err != nil {
		return record, result, err
	}
	draft := newDir + "/" + record.Name
	if err := p.removeDraft(draft); err != nil { // of an attempt that a crash ended
		return record, result, err
	}
	limited := pl == volumes // a snapshot does not grow
	if result, err = p.fill(ctx, draft, &record, limited, source); err != nil {
		if errors.Is(err, reflink.ErrChanged) {
			err = fmt.Errorf("%w; %w", err, ErrInUse)
		}
		return record, result, errors.Join(err, p.removeDraft(draft))
	}
	record.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.write(pl, record); err != nil {
		return record, result, errors.Join(err, p.removeDraft(draft))
	}
	return record, result, p.move(draft, pl.path(record.Name))
}

func fits(record Record, source *Copy) error {
	if source == nil {
		return nil
	}
	from := source.From.Record
	if from.Block != record.Block {
		return fmt.Errorf("its volume mode is not that of its source %s: %w", from.Name, ErrDiffers)
	}
	if from.Capacity > record.Capacity {
		return fmt.Errorf("%d bytes, source %s has %d: %w", record.Capacity, from.Name, from.Capacity, ErrTooSmall)
	}
	return nil
}

func (p *Pool) delete(pl place, name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("deleting %q of pool %s: %w", name, p.name, ErrName)
	}
	err := p.discard(pl, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// What is in the trash keeps others from taking its project until the limit is gone.
	record, err := p.recorded(pl, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.setLimit(record, 0); err != nil {
		return err
	}
	if err := p.forget(pl, name); err != nil {
		return err
	}
	return p.emptyTrash(name)
}

// discard moves what is called name to the trash, or where the pool is so full that nothing can be moved removes it.
func (p *Pool) discard(pl place, name string) error {
	rest := fmt.Sprintf("%s/%s@%d", trashDir, name, time.Now().UnixNano()) // no name has an @
	err := p.prepare(trashDir)
	if err == nil {
		err = p.move(pl.path(name), rest)
	}
	if errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
		return p.remove(pl.path(name))
	}
	return err
}

// emptyTrash removes this and earlier rests of name.
func (p *Pool) emptyTrash(name string) error {
	rests, err := p.list(trashDir)
	if err != nil {
		return err
	}
	for _, rest := range rests {
		if strings.HasPrefix(rest, name+"@") {
			if err := p.remove(trashDir + "/" + rest); err != nil {
				return err
			}
		}
	}
	return nil
}
