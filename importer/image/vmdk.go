package image

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
)

// Bounds and marks of a VMDK sparse extent; numbers are little endian. All of it is in
// VMware's Virtual Disk Format 5.0.
const (
	vmdkSector        = 512
	vmdkHeaderSize    = 512
	vmdkEnd           = 3 * vmdkSector // the last sectors of a stream: a marker, the footer, the mark of the end
	vmdkAtEnd         = 1<<64 - 1      // the directory's place is only known to the footer
	vmdkMaxTable      = 512
	vmdkMaxDirectory  = 2 << 20 // entries
	vmdkMaxDescriptor = 1 << 20
	vmdkMinGrain      = 8 * vmdkSector
)

// Flags of a VMDK header.
const (
	vmdkNewlines   = 1 << 0 // the header has characters that a transfer as text would change
	vmdkZeroGrains = 1 << 2 // 1 in a table stands for zeros
	vmdkCompressed = 1 << 16
	vmdkMarkers    = 1 << 17
)

// vmdk is the layout of a VMDK with one extent, which is sparse: a directory of tables of
// 4-byte numbers of sectors, and grains, alone or packed.
type vmdk struct {
	size, grain int64
	perTable    int64 // entries of a table
	directory   extent
	descriptor  extent
	overhead    int64 // bytes before the first grain
	flags       uint32
	atEnd       bool
}

// parseVMDK reads header, descriptor and, where there is one, the footer.
func parseVMDK(head []byte, meta io.ReaderAt, fileSize int64) (*vmdk, error) {
	v, err := parseVMDKHeader(head)
	if err != nil {
		return nil, err
	}
	if err := VMDK.within(v.descriptor, fileSize); err != nil {
		return nil, err
	}
	text := make([]byte, v.descriptor.length)
	if err := readFull(meta, text, v.descriptor.offset); err != nil {
		return nil, VMDK.cut(err, v.descriptor.what, v.descriptor.offset)
	}
	if err := checkVMDKDescriptor(text); err != nil {
		return nil, err
	}
	if v.atEnd {
		if v, err = parseVMDKFooter(v, meta, fileSize); err != nil {
			return nil, err
		}
	}
	if err := VMDK.within(v.directory, fileSize); err != nil {
		return nil, err
	}
	return v, VMDK.apart(v.metadata())
}

// metadata is what no grain and no table may lie on.
func (v *vmdk) metadata() []extent {
	return []extent{{"its header", 0, vmdkHeaderSize}, v.descriptor, v.directory}
}

// parseVMDKHeader reads a header, which the footer is, too.
func parseVMDKHeader(p []byte) (*vmdk, error) {
	if len(p) < vmdkHeaderSize || string(p[:4]) != "KDMV" {
		return nil, VMDK.invalid("its header is cut off")
	}
	version, flags := binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:])
	if version < 1 || version > 3 {
		return nil, VMDK.unsupported("has version %d", version)
	}
	if flags&vmdkNewlines != 0 && string(p[73:77]) != "\n \r\n" {
		return nil, VMDK.invalid("its line ends were changed, as by a transfer as text")
	}
	packing := binary.LittleEndian.Uint16(p[77:])
	if packed := flags&vmdkCompressed != 0; packing > 1 || packed != (packing == 1) || packed && flags&vmdkMarkers == 0 {
		return nil, VMDK.unsupported("is compressed in the unknown way %d", packing)
	}
	v := &vmdk{flags: flags}
	v.size, v.grain, v.overhead = vmdkBytes(p[12:]), vmdkBytes(p[20:]), vmdkBytes(p[64:])
	v.descriptor = extent{"its descriptor", vmdkBytes(p[28:]), vmdkBytes(p[36:])}
	v.perTable = int64(binary.LittleEndian.Uint32(p[44:]))
	if v.atEnd = binary.LittleEndian.Uint64(p[56:]) == vmdkAtEnd; !v.atEnd {
		v.directory.offset = vmdkBytes(p[56:])
	}
	return v, v.checkHeader()
}

// vmdkBytes reads a number of sectors as bytes; one that no file has becomes -1.
func vmdkBytes(p []byte) int64 {
	n := binary.LittleEndian.Uint64(p)
	if n > 1<<62/vmdkSector {
		return -1
	}
	return int64(n) * vmdkSector
}

func (v *vmdk) checkHeader() error {
	switch {
	case v.size == 0:
		return VMDK.invalid("its disk has no bytes")
	case v.size < 0 || v.overhead < 0 || v.directory.offset < 0:
		return VMDK.invalid("its header has numbers that are too large")
	case v.grain < vmdkMinGrain || v.grain > MaxCluster || v.grain&(v.grain-1) != 0:
		return VMDK.invalid("its grains are said to have %d bytes", v.grain)
	case v.perTable < 1 || v.perTable > vmdkMaxTable:
		return VMDK.invalid("its tables are said to have %d entries", v.perTable)
	case v.descriptor.offset == 0:
		return errVMDKPart
	case v.descriptor.length <= 0 || v.descriptor.length > vmdkMaxDescriptor:
		return VMDK.invalid("its descriptor is said to have %d bytes", v.descriptor.length)
	}
	entries := (v.size-1)/(v.grain*v.perTable) + 1
	if entries > vmdkMaxDirectory {
		return VMDK.invalid("its disk is said to have %d bytes, for which its directory would be too large", v.size)
	}
	v.directory.what, v.directory.length = "its directory", 4*entries
	return nil
}

// parseVMDKFooter reads the copy of the header that knows where the directory is.
func parseVMDKFooter(first *vmdk, meta io.ReaderAt, fileSize int64) (*vmdk, error) {
	if fileSize == UnknownSize {
		return nil, VMDK.unsupported("has its directory at its end, and is no stream")
	}
	at := extent{"its footer", fileSize - vmdkEnd, vmdkEnd}
	if err := VMDK.within(at, fileSize); err != nil {
		return nil, err
	}
	p := make([]byte, vmdkEnd)
	if err := readFull(meta, p, at.offset); err != nil {
		return nil, VMDK.cut(err, at.what, at.offset)
	}
	if marker := parseVMDKMarker(p); marker.size != 0 || marker.kind != vmdkMarkFooter || string(p[vmdkSector:vmdkSector+4]) != "KDMV" {
		return nil, VMDK.invalid("its footer is not where it should be; it is truncated")
	}
	v, err := parseVMDKHeader(p[vmdkSector : 2*vmdkSector])
	if err != nil {
		return nil, err
	}
	if v.atEnd || v.size != first.size || v.grain != first.grain || v.perTable != first.perTable || v.flags != first.flags {
		return nil, VMDK.invalid("its header and its footer contradict each other")
	}
	return v, nil
}

// errVMDKPart refuses an extent whose descriptor is in another file.
var errVMDKPart = VMDK.unsupported("is a part of a disk in several files")

// checkVMDKDescriptor refuses disks that are in several files, or are a difference to another.
func checkVMDKDescriptor(text []byte) error {
	extents := 0
	for line := range strings.Lines(strings.TrimRight(string(text), "\x00")) {
		line = strings.TrimSpace(line)
		access, rest, _ := strings.Cut(line, " ")
		if access == "RW" || access == "RDONLY" || access == "NOACCESS" {
			if fields := strings.Fields(rest); len(fields) < 2 || fields[1] != "SPARSE" {
				return VMDK.unsupported("keeps its data in another file")
			}
			extents++
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "parentcid":
			if !strings.EqualFold(value, "ffffffff") {
				return VMDK.unsupported("holds only the difference to another image")
			}
		case "parentfilenamehint":
			return VMDK.unsupported("holds only the difference to the image %q", value)
		case "createtype":
			if !strings.EqualFold(value, "monolithicSparse") && !strings.EqualFold(value, "streamOptimized") {
				return VMDK.unsupported("is of the kind %q", value)
			}
		}
	}
	switch {
	case extents == 0:
		return errVMDKPart
	case extents > 1:
		return VMDK.unsupported("consists of %d extents", extents)
	}
	return nil
}

// DiskSize is the disk's size in bytes.
func (v *vmdk) DiskSize() int64 { return v.size }

// Open reads the directory.
func (v *vmdk) Open(meta io.ReaderAt, fileSize int64) (Disk, error) {
	entries := v.directory.length / 4
	d := &vmdkDisk{
		vmdk: v, fileSize: fileSize, reserved: v.metadata(), cache: newTableCache(meta, tablePage), tables: make([]uint32, 0, entries),
	}
	for raw := make([]byte, tablePage); int64(len(d.tables)) < entries; {
		at := v.directory.offset + int64(4*len(d.tables))
		raw = raw[:min(int64(len(raw)), v.directory.end()-at)]
		if err := readFull(meta, raw, at); err != nil {
			return nil, VMDK.cut(err, v.directory.what, at)
		}
		for n := 0; n < len(raw); n += 4 {
			d.tables = append(d.tables, binary.LittleEndian.Uint32(raw[n:]))
		}
	}
	if err := d.checkTables(); err != nil {
		return nil, err
	}
	return d, nil
}

// checkTables refuses tables that lie outside of the file, on its metadata or on each other.
func (d *vmdkDisk) checkTables() error {
	d.sorted = slices.DeleteFunc(slices.Clone(d.tables), func(sector uint32) bool { return sector == 0 })
	slices.Sort(d.sorted)
	last := int64(0)
	for _, sector := range d.sorted {
		at := extent{"a table", int64(sector) * vmdkSector, 4 * d.perTable}
		if err := VMDK.within(at, d.fileSize); err != nil {
			return err
		}
		if at.offset < last {
			return VMDK.invalid("two of its tables stand at byte %d", at.offset)
		}
		last = at.end()
		if err := d.checkFree(at); err != nil {
			return err
		}
	}
	return nil
}

// checkFree refuses a stretch that lies on metadata.
func (d *vmdkDisk) checkFree(at extent) error {
	for _, m := range d.reserved {
		if at.offset < m.end() && m.offset < at.end() {
			return VMDK.invalid("%s at byte %d overlaps %s", at.what, at.offset, m.what)
		}
	}
	return nil
}

// checkGrain refuses a grain that cannot be one.
func (d *vmdkDisk) checkGrain(index int64, at extent) error {
	if at.offset >= d.fileSize {
		return VMDK.invalid("grain %d is said to stand at byte %d, the file has only %d; it is truncated", index, at.offset, d.fileSize)
	}
	if err := d.checkFree(at); err != nil {
		return err
	}
	// The first table that ends behind the grain's first byte must begin behind its last.
	n, _ := slices.BinarySearchFunc(d.sorted, at.offset, func(sector uint32, offset int64) int {
		if int64(sector)*vmdkSector+4*d.perTable <= offset {
			return -1
		}
		return 1
	})
	if n < len(d.sorted) && int64(d.sorted[n])*vmdkSector < at.end() {
		return VMDK.invalid("grain %d at byte %d stands on a table", index, at.offset)
	}
	return nil
}
