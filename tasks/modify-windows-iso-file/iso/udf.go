package iso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// Tags of UDF's descriptors.
const (
	tagAnchor       = 2
	tagPartition    = 5
	tagVolume       = 6
	tagEnd          = 8
	tagFileSet      = 256
	tagName         = 257
	tagFile         = 261
	tagExtendedFile = 266
)

// anchorSector is where UDF begins.
const anchorSector = 256

// Sizes and places in UDF's descriptors, in bytes.
const (
	tagSize       = 16
	placeFlags    = 34 // of a file's description: how its pieces are told
	placeSize     = 56
	pieceKindBits = 7
)

// Ways in which the pieces of a file are told.
const (
	piecesShort  = 0
	piecesLong   = 1
	piecesWithin = 3 // the content stands in their place
)

var errUDF = errors.New("the UDF file system of the iso file is damaged or of a kind that is not supported")

// volume is the UDF file system, which has one partition.
type volume struct {
	image *Image
	start int64 // the partition's first sector
	root  int64 // the sector of the root folder's description
}

var le = binary.LittleEndian

// udf reads the descriptors of the image's UDF file system; nil when there is none.
func (m *Image) udf() (*volume, error) {
	found := false
	for sector := int64(firstVolume); sector < min(lastVolume, m.sectors) && !found; sector++ {
		data, err := m.read(sector)
		if err != nil {
			return nil, err
		}
		found = slices.Contains([]string{"NSR02", "NSR03"}, string(data[1:6]))
	}
	if !found {
		return nil, nil //nolint:nilnil // no file system is no error
	}
	anchor, err := m.described(anchorSector, 0, tagAnchor)
	if err != nil {
		return nil, err
	}
	v := &volume{image: m, start: -1}
	fileSet, err := v.sequence(int64(le.Uint32(anchor[20:])), int64(le.Uint32(anchor[16:]))/sectorSize)
	if err != nil {
		return nil, err
	}
	if v.start < 0 || fileSet < 0 {
		return nil, fmt.Errorf("%w: it has no partition", errUDF)
	}
	set, err := m.described(v.start+fileSet, fileSet, tagFileSet)
	if err != nil {
		return nil, err
	}
	v.root = v.start + int64(le.Uint32(set[404:]))
	return v, nil
}

// sequence reads n descriptors of the volume from a sector on: the partition's start, and where in
// it the set of files is, or -1.
func (v *volume) sequence(first, n int64) (fileSet int64, err error) {
	fileSet = -1
	for sector := first; sector < first+n; sector++ {
		data, err := v.image.read(sector)
		if err != nil {
			return 0, err
		}
		switch le.Uint16(data) {
		case tagPartition:
			v.start = int64(le.Uint32(data[188:]))
		case tagVolume:
			if le.Uint32(data[212:]) != sectorSize || le.Uint32(data[268:]) != 1 || data[440] != 1 {
				return 0, fmt.Errorf("%w: it has other sectors or partitions than discs have", errUDF)
			}
			fileSet = int64(le.Uint32(data[252:]))
		case tagEnd:
			return fileSet, nil
		}
	}
	return fileSet, nil
}

// described reads a descriptor and checks its tag; location is what the tag says of its place.
func (m *Image) described(sector, location int64, tags ...uint16) ([]byte, error) {
	data, err := m.read(sector)
	if err != nil {
		return nil, err
	}
	if tag := le.Uint16(data); !slices.Contains(tags, tag) || data[4] != tagSum(data) || tags[0] != tagAnchor && int64(le.Uint32(data[12:])) != location {
		return nil, fmt.Errorf("%w: sector %d is not what it should be", errUDF, sector)
	}
	return data, nil
}

// node reads the description of a file or folder.
func (v *volume) node(sector int64) ([]byte, error) {
	return v.image.described(sector, sector-v.start, tagFile, tagExtendedFile)
}

// pieces returns where the list of a description's pieces begins and ends.
func pieces(node []byte) (begin, end int, err error) {
	at := 168
	if le.Uint16(node) == tagExtendedFile {
		at = 208
	}
	begin = at + 8 + int(le.Uint32(node[at:]))
	end = begin + int(le.Uint32(node[at+4:]))
	if begin < at+8 || end < begin || end > sectorSize {
		return 0, 0, fmt.Errorf("%w: the pieces of a file are not within its description", errUDF)
	}
	return begin, end, nil
}

// piece is a part of a file's content.
type piece struct{ sector, size int64 }

// list reads the pieces of a description.
func (v *volume) list(node []byte) ([]piece, error) {
	begin, end, err := pieces(node)
	if err != nil {
		return nil, err
	}
	step := 8
	switch le.Uint16(node[placeFlags:]) & pieceKindBits {
	case piecesShort:
	case piecesLong:
		step = 16
	default:
		return nil, fmt.Errorf("%w: a file's pieces are told in an unknown way", errUDF)
	}
	var all []piece
	for at := begin; at+step <= end; at += step {
		length := le.Uint32(node[at:])
		if length&0xc0000000 != 0 {
			return nil, fmt.Errorf("%w: a file has holes", errUDF)
		}
		if length > 0 {
			all = append(all, piece{v.start + int64(le.Uint32(node[at+4:])), int64(length)})
		}
	}
	return all, nil
}

// content reads a folder.
func (v *volume) content(node []byte) ([]byte, error) {
	if le.Uint16(node[placeFlags:])&pieceKindBits == piecesWithin {
		begin, end, err := pieces(node)
		if err != nil {
			return nil, err
		}
		return node[begin:end], nil
	}
	list, err := v.list(node)
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, p := range list {
		data, err := v.image.extent(p.sector, p.size)
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

// child returns the sector of the description of name in a folder.
func (v *volume) child(folder []byte, name string, wantFolder bool) (int64, error) {
	const (
		deleted   = 4
		parent    = 8
		isFolder  = 2
		nameStart = 38
	)
	data, err := v.content(folder)
	if err != nil {
		return 0, err
	}
	for len(data) >= nameStart {
		if le.Uint16(data) != tagName {
			return 0, fmt.Errorf("%w: a folder has something else than names", errUDF)
		}
		flags, more, length := data[18], int(le.Uint16(data[36:])), int(data[19])
		end := nameStart + more + length
		if end > len(data) {
			return 0, fmt.Errorf("%w: a name goes beyond its folder", errUDF)
		}
		if flags&(deleted|parent) == 0 && (flags&isFolder != 0) == wantFolder && strings.EqualFold(decode(data[nameStart+more:end]), name) {
			return v.start + int64(le.Uint32(data[24:])), nil
		}
		data = data[min(len(data), (end+3)/4*4):]
	}
	return 0, ErrNotFound
}

// decode reads a name, whose first byte says how many bits a letter has.
func decode(name []byte) string {
	if len(name) == 0 {
		return ""
	}
	letters := make([]uint16, 0, len(name))
	switch name[0] {
	case 8:
		for _, b := range name[1:] {
			letters = append(letters, uint16(b))
		}
	case 16:
		for rest := name[1:]; len(rest) > 1; rest = rest[2:] {
			letters = append(letters, binary.BigEndian.Uint16(rest))
		}
	}
	return string(utf16.Decode(letters))
}

// look follows path to the sector of a file's description.
func (v *volume) look(path []string) (int64, error) {
	here := v.root
	for i, name := range path {
		node, err := v.node(here)
		if err != nil {
			return 0, err
		}
		if here, err = v.child(node, name, i < len(path)-1); err != nil {
			return 0, err
		}
	}
	return here, nil
}

func (v *volume) find(path []string) (file, error) {
	entry, err := v.look(path)
	if err != nil {
		return file{}, err
	}
	node, err := v.node(entry)
	if err != nil {
		return file{}, err
	}
	list, err := v.list(node)
	if err != nil {
		return file{}, err
	}
	f := file{entry: entry, size: int64(le.Uint64(node[placeSize:]))}
	for i, p := range list {
		if i == 0 {
			f.sector = p.sector
		} else if before := list[i-1]; p.sector != before.sector+(before.size+sectorSize-1)/sectorSize {
			return file{}, fmt.Errorf("%s is in several pieces, which is not supported", strings.Join(path, "/"))
		}
	}
	return f, nil
}

// point copies the description of other, and keeps what is the file's own: its place, and its
// number in the file system.
func (v *volume) point(path []string, other file) error {
	entry, err := v.look(path)
	if err != nil || entry == other.entry {
		return err
	}
	if other.entry == 0 {
		return fmt.Errorf("%w: it lacks the file with the new content", errUDF)
	}
	own, err := v.node(entry)
	if err != nil {
		return err
	}
	node, err := v.node(other.entry)
	if err != nil {
		return err
	}
	number := 160
	if le.Uint16(node) == tagExtendedFile {
		number = 200
	}
	if le.Uint16(node) == le.Uint16(own) {
		copy(node[number:number+8], own[number:])
	}
	le.PutUint32(node[12:], uint32(entry-v.start))
	size := min(int(le.Uint16(node[10:])), sectorSize-tagSize)
	le.PutUint16(node[8:], crc(node[tagSize:tagSize+size]))
	node[4] = tagSum(node)
	v.image.write(entry, node)
	return nil
}

// tagSum is the sum over a tag's bytes, its own place left out.
func tagSum(data []byte) byte {
	sum := byte(0)
	for i, b := range data[:tagSize] {
		if i != 4 {
			sum += b
		}
	}
	return sum
}

// crc is the check of descriptors: CRC-16 with the polynomial x¹⁶+x¹²+x⁵+1, beginning at zero.
func crc(data []byte) uint16 {
	const polynomial = 0x1021
	sum := uint16(0)
	for _, b := range data {
		sum ^= uint16(b) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ polynomial
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}
