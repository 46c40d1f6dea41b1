package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Record says what a volume or snapshot was made for.
type Record struct {
	// Name is the volume's or snapshot's name.
	Name string `json:"name"`
	// Block says that the data is one disk, not a directory of files.
	Block bool `json:"block,omitempty"`
	// Capacity is the size in bytes: of a block volume exactly, of others what was asked
	// for, which is enforced where there is a project. 0: unknown.
	Capacity int64 `json:"capacity,omitempty"`
	// Project is the quota project of a volume of files, 0 when it has none.
	Project uint32 `json:"project,omitempty"`
	// Subvolume says that a volume of files is a limited subvolume of btrfs.
	Subvolume bool `json:"subvolume,omitempty"`
	// Source is what the data was copied from, as Volume or Snapshot say it; or "".
	Source string `json:"source,omitempty"`
	// Created is when it was complete.
	Created time.Time `json:"created,omitzero"`
}

// VolumeSource is the Source of what was copied from a volume.
func VolumeSource(name string) string { return "volume:" + name }

// SourceVolume is the volume that a Source names, "" when it names none.
func SourceVolume(source string) string {
	volume, found := strings.CutPrefix(source, VolumeSource(""))
	if !found {
		return ""
	}
	return volume
}

// SnapshotSource is the Source of what was copied from a snapshot.
func SnapshotSource(name string) string { return "snapshot:" + name }

// satisfies tells whether what have was made for is what want asks for.
func (r Record) satisfies(want Record) bool {
	return r.Block == want.Block && r.Source == want.Source &&
		(r.Capacity == want.Capacity || r.Capacity == 0 || want.Capacity == 0)
}

// place is where one kind of thing is kept.
type place struct{ data, records string }

var (
	volumes   = place{".", volumeRecDir}
	snapshots = place{snapshotDir, snapRecDir}
)

func (pl place) path(name string) string {
	if pl.data == "." {
		return name
	}
	return pl.data + "/" + name
}

func (pl place) record(name string) string { return pl.records + "/" + name + ".json" }

// Volume returns the record of a volume, ErrNotFound when there is none.
func (p *Pool) Volume(name string) (Record, error) { return p.lookup(volumes, name) }

// Snapshot returns the record of a snapshot, ErrNotFound when there is none.
func (p *Pool) Snapshot(name string) (Record, error) { return p.lookup(snapshots, name) }

// lookup goes by the data: a record alone is the rest of a crash. Data alone is a volume
// that another driver made before; what it was made for is then unknown.
func (p *Pool) lookup(pl place, name string) (Record, error) {
	if !validName.MatchString(name) {
		return Record{}, fmt.Errorf("looking up %q in pool %s: %w", name, p.name, ErrName)
	}
	info, err := p.root.Lstat(pl.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("looking up %s in pool %s: %w", name, p.name, ErrNotFound)
	}
	if err != nil {
		return Record{}, fmt.Errorf("looking up %s in pool %s: %w", name, p.name, err)
	}
	found := Record{Name: name}
	switch {
	case info.Mode().IsRegular():
		found.Block, found.Capacity = true, info.Size()
	case !info.IsDir():
		return Record{}, fmt.Errorf("looking up %s in pool %s: it is neither a directory nor a file", name, p.name)
	}
	record, err := p.recorded(pl, name)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	record.Capacity = max(record.Capacity, found.Capacity) // an expansion of a device may have been cut off
	return record, err
}

// recorded returns what was written down of a volume or snapshot, whether its data is there or not; nothing
// written is fs.ErrNotExist.
func (p *Pool) recorded(pl place, name string) (Record, error) {
	data, err := p.root.ReadFile(pl.record(name))
	if err != nil {
		return Record{}, fmt.Errorf("reading the record of %s in pool %s: %w", name, p.name, err)
	}
	var record Record
	if err := json.Unmarshal(data, &record); err != nil {
		return Record{}, fmt.Errorf("reading the record of %s in pool %s: %w", name, p.name, err)
	}
	return record, nil
}

// write keeps a record, whole or not at all.
func (p *Pool) write(pl place, record Record) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("writing the record of %s in pool %s: %w", record.Name, p.name, err)
	}
	draft := pl.record(record.Name) + ".new"
	file, err := p.root.OpenFile(draft, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing the record of %s in pool %s: %w", record.Name, p.name, err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("writing the record of %s in pool %s: %w", record.Name, p.name, err)
	}
	return p.move(draft, pl.record(record.Name))
}

func (p *Pool) forget(pl place, name string) error {
	if err := p.root.Remove(pl.record(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the record of %s in pool %s: %w", name, p.name, err)
	}
	return nil
}
