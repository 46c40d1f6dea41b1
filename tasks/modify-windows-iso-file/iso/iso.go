// Package iso gives a file of a disc image the content of another by changing where it is said
// to lie, in each of the image's file systems (ISO 9660, Joliet, UDF) and in its boot catalogue. A
// few sectors of 2048 bytes change, whatever the image's size, and the files themselves none.
package iso

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// sectorSize is that of discs, in bytes.
const sectorSize = 2048

// ErrNotFound is returned for a path that no file system of the image has.
var ErrNotFound = errors.New("not found in the iso file")

// Image is a disc image with changes that are not written yet.
type Image struct {
	disk    io.ReaderAt
	sectors int64
	changed map[int64][]byte
	trees   []tree
}

// tree is a file system of the image.
type tree interface {
	// find returns the file at path, whose names are compared without regard to case.
	find(path []string) (file, error)
	// point makes the file at path lie where other lies.
	point(path []string, other file) error
}

// file is where a file lies.
type file struct {
	// sector is its first, size its length in bytes.
	sector, size int64
	// entry is the sector of its own description, in UDF only.
	entry int64
}

func (f file) sectors() int64 { return (f.size + sectorSize - 1) / sectorSize }

// Open reads the descriptors of the image of size bytes.
func Open(disk io.ReaderAt, size int64) (*Image, error) {
	m := &Image{disk: disk, sectors: size / sectorSize, changed: map[int64][]byte{}}
	discs, err := m.volumes()
	if err != nil {
		return nil, err
	}
	udf, err := m.udf()
	if err != nil {
		return nil, err
	}
	for _, d := range discs {
		m.trees = append(m.trees, d)
	}
	if udf != nil {
		m.trees = append(m.trees, udf)
	}
	if len(m.trees) == 0 {
		return nil, errors.New("there is neither an ISO 9660 nor a UDF file system: this is no iso file")
	}
	return m, nil
}

// read returns a sector with the changes so far. What is written into it changes nothing.
func (m *Image) read(sector int64) ([]byte, error) {
	if changed, ok := m.changed[sector]; ok {
		return bytes.Clone(changed), nil
	}
	if sector < 0 || sector >= m.sectors {
		return nil, fmt.Errorf("the iso file is damaged or cut off: it has no sector %d", sector)
	}
	data := make([]byte, sectorSize)
	if _, err := m.disk.ReadAt(data, sector*sectorSize); err != nil {
		return nil, fmt.Errorf("reading sector %d: %w", sector, err)
	}
	return data, nil
}

// write notes a changed sector.
func (m *Image) write(sector int64, data []byte) { m.changed[sector] = data }

// extent reads n bytes from a sector on; no folder and no boot file is longer than the bound.
func (m *Image) extent(sector, n int64) ([]byte, error) {
	const bound = 16 << 20
	if n < 0 || n > bound {
		return nil, fmt.Errorf("the iso file is damaged: a folder or boot file of %d bytes", n)
	}
	var all []byte
	for int64(len(all)) < n {
		data, err := m.read(sector)
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
		sector++
	}
	return all[:n], nil
}

// find returns the file at path in the first tree that has it. Names may be cut short in plain
// ISO 9660, but then another tree has them whole.
func (m *Image) find(path []string) (file, error) {
	for _, t := range m.trees {
		f, err := t.find(path)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		return f, err
	}
	return file{}, ErrNotFound
}

// Has says whether the image has a file at path.
func (m *Image) Has(path ...string) (bool, error) {
	_, err := m.find(path)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Contents returns what the file at path has in each tree that has it, with the changes so far.
func (m *Image) Contents(path ...string) ([][]byte, error) {
	var all [][]byte
	for _, t := range m.trees {
		f, err := t.find(path)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := m.extent(f.sector, f.size)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// Point makes the file at path have the content of the file at other, in every tree that has it.
func (m *Image) Point(path, other []string) error {
	lie, err := m.find(other)
	if err != nil {
		return fmt.Errorf("looking for %v: %w", other, err)
	}
	found := false
	for _, t := range m.trees {
		own, err := t.find(other) // a tree of UDF needs its own description
		if errors.Is(err, ErrNotFound) {
			own, err = lie, nil
		}
		if err != nil {
			return err
		}
		switch err := t.point(path, own); {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return fmt.Errorf("changing %v: %w", path, err)
		default:
			found = true
		}
	}
	if !found {
		return fmt.Errorf("looking for %v: %w", path, ErrNotFound)
	}
	return nil
}

// Storage is what changes are written to.
type Storage interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// Commit writes the changes and returns how many sectors it wrote. It reads them again; if one is
// not as it must be, all are put back. After each single write the image is a whole one, so an
// interruption harms nothing, and Commit may be repeated.
func (m *Image) Commit(disk Storage) (int, error) {
	var done []int64
	before := map[int64][]byte{}
	data := make([]byte, sectorSize)
	for _, sector := range slices.Sorted(maps.Keys(m.changed)) {
		if _, err := disk.ReadAt(data, sector*sectorSize); err != nil {
			return 0, fmt.Errorf("reading sector %d: %w", sector, err)
		}
		if !bytes.Equal(data, m.changed[sector]) {
			done = append(done, sector)
			before[sector] = bytes.Clone(data)
		}
	}
	if err := exchange(disk, done, m.changed); err != nil {
		return 0, errors.Join(err, exchange(disk, done, before))
	}
	return len(done), nil
}

// exchange writes sectors and makes sure of them.
func exchange(disk Storage, sectors []int64, content map[int64][]byte) error {
	for _, sector := range sectors {
		if _, err := disk.WriteAt(content[sector], sector*sectorSize); err != nil {
			return fmt.Errorf("writing sector %d: %w", sector, err)
		}
		if err := disk.Sync(); err != nil {
			return fmt.Errorf("writing sector %d: %w", sector, err)
		}
	}
	data := make([]byte, sectorSize)
	for _, sector := range sectors {
		if _, err := disk.ReadAt(data, sector*sectorSize); err != nil {
			return fmt.Errorf("reading sector %d again: %w", sector, err)
		}
		if !bytes.Equal(data, content[sector]) {
			return fmt.Errorf("sector %d is not what was written to it", sector)
		}
	}
	return nil
}
