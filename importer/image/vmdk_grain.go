package image

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
)

// Kinds of markers that are no grain.
const (
	vmdkMarkEnd    = 0
	vmdkMarkFooter = 3
)

// Sizes of a marker: before a grain's packed bytes, and with the kind that others have.
const (
	vmdkGrainMarker = 12
	vmdkMarker      = 16
)

// vmdkMark is what stands before a packed grain, a table or another part.
type vmdkMark struct {
	value uint64 // a grain's first sector on the disk, or how many sectors a part has
	size  uint32 // packed bytes of a grain; 0 before other parts
	kind  uint32
}

func parseVMDKMarker(p []byte) vmdkMark {
	m := vmdkMark{value: binary.LittleEndian.Uint64(p), size: binary.LittleEndian.Uint32(p[8:])}
	if m.size == 0 && len(p) >= vmdkMarker {
		m.kind = binary.LittleEndian.Uint32(p[12:])
	}
	return m
}

// vmdkDisk is an open VMDK.
type vmdkDisk struct {
	*vmdk
	fileSize int64
	tables   []uint32 // sectors where tables stand, 0 where there is none
	sorted   []uint32 // those that there are, to find grains that overlap them
	reserved []extent
	cache    *tableCache
	codecs   codecPool
}

// Unit is a grain, or more.
func (d *vmdkDisk) Unit() int64 { return max(MinUnit, d.grain) }

// Read fills p with the disk's bytes at off; see Disk.
func (d *vmdkDisk) Read(r io.ReaderAt, p []byte, off int64) (allocated bool, err error) {
	return readClusters(d, r, p, off)
}

func (d *vmdkDisk) clusterSize() int64 { return d.grain }

func (d *vmdkDisk) cut(err error, what string, at int64) error { return VMDK.cut(err, what, at) }

func (d *vmdkDisk) readCluster(pending *stretch, part []byte, off int64) (bool, error) {
	index := off / d.grain
	sector := d.tables[index/d.perTable]
	if sector == 0 {
		return false, nil
	}
	offset := int64(sector) * vmdkSector
	table, err := d.cache.get(offset, 4*d.perTable)
	if err != nil {
		return false, d.cut(err, "a table", offset)
	}
	entry := binary.LittleEndian.Uint32(table[4*(index%d.perTable):])
	if entry == 0 || entry == 1 && d.flags&vmdkZeroGrains != 0 {
		return false, nil
	}
	host := int64(entry) * vmdkSector
	if d.flags&vmdkCompressed != 0 {
		return true, d.readPacked(pending.reader, part, index, host)
	}
	if err := d.checkGrain(index, extent{"a grain", host, d.grain}); err != nil {
		return false, err
	}
	return true, pending.add(part, host+off%d.grain)
}

// readPacked unpacks a grain into part, which is shorter than it at the disk's end.
func (d *vmdkDisk) readPacked(r io.ReaderAt, part []byte, index, host int64) error {
	if err := d.checkGrain(index, extent{"a grain", host, vmdkGrainMarker}); err != nil {
		return err
	}
	codec, err := d.codecs.take()
	if err != nil {
		return err
	}
	defer d.codecs.put(codec)
	marker := codec.input(vmdkGrainMarker)
	if err := readFull(r, marker, host); err != nil {
		return d.cut(err, "a grain", host)
	}
	m := parseVMDKMarker(marker)
	if err := d.checkMarker(m, index*d.grain, host); err != nil {
		return err
	}
	host, length := host+vmdkGrainMarker, int64(m.size)
	if err := d.checkGrain(index, extent{"a grain", host, length}); err != nil {
		return err
	}
	packed := codec.input(length)
	if err := readFull(r, packed, host); err != nil {
		return d.cut(err, "a grain", host)
	}
	return codec.unpackGrain(part, packed, d.grain, host)
}

// checkMarker refuses a grain that is of another place, or longer than packing makes it.
func (v *vmdk) checkMarker(m vmdkMark, off, host int64) error {
	if m.value != uint64(off/vmdkSector) {
		return VMDK.invalid("the grain at byte %d is said to be sector %d of the disk, not %d", host, m.value, off/vmdkSector)
	}
	return v.checkPacked(m, host)
}

func (v *vmdk) checkPacked(m vmdkMark, host int64) error {
	if int64(m.size) > v.grain+v.grain/8+1024 {
		return VMDK.invalid("the grain at byte %d is said to be packed into %d bytes", host, m.size)
	}
	return nil
}

// Errors of a packed grain.
var (
	errZlib    = errors.New("not a zlib stream")
	errAdler32 = errors.New("its checksum is wrong")
)

// unpackGrain fills part, a grain or its beginning, from a zlib stream.
func (c *codec) unpackGrain(part, packed []byte, grain, host int64) error {
	fail := func(err error) error {
		return VMDK.invalid("the packed grain at byte %d cannot be unpacked (%w)", host, err)
	}
	const header, trailer = 2, 4
	if len(packed) < header+trailer || packed[0]&15 != 8 || packed[1]&32 != 0 || binary.BigEndian.Uint16(packed)%31 != 0 {
		return fail(errZlib)
	}
	if err := c.flate.Decode(part, packed[header:]); err != nil {
		return fail(err)
	}
	if sum := binary.BigEndian.Uint32(packed[len(packed)-trailer:]); int64(len(part)) == grain && adler32.Checksum(part) != sum {
		return fail(errAdler32)
	}
	return nil
}
