package iso

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// Kinds of volume descriptors.
const (
	volumeBoot    = 0
	volumePrimary = 1
	volumeMore    = 2
	volumeEnd     = 255
)

const (
	firstVolume = 16  // the sector of the first descriptor
	lastVolume  = 100 // no image has so many
	rootRecord  = 156 // of a volume descriptor
)

// disc is a file system of ISO 9660; Joliet is one whose names are in UTF-16.
type disc struct {
	image  *Image
	root   record
	joliet bool
}

// record is a file or folder in a folder.
type record struct {
	file
	folder, more bool // more: the file goes on in another record
	name         string
	// at is the sector with the record, offset where in it.
	at, offset int64
}

// volumes reads the descriptors of the image's ISO 9660 file systems.
func (m *Image) volumes() ([]*disc, error) {
	var discs []*disc
	for sector := int64(firstVolume); sector < min(lastVolume, m.sectors); sector++ {
		data, err := m.read(sector)
		if err != nil {
			return nil, err
		}
		if string(data[1:6]) != "CD001" {
			continue // a descriptor of UDF
		}
		switch data[0] {
		case volumePrimary, volumeMore:
			escape := string(data[88:91])
			joliet := data[0] == volumeMore && slices.Contains([]string{"%/@", "%/C", "%/E"}, escape)
			discs = append(discs, &disc{image: m, joliet: joliet, root: parseRecord(data[rootRecord:rootRecord+34], joliet)})
		case volumeEnd:
			return discs, nil
		}
	}
	return discs, nil
}

// parseRecord reads a record whose length was checked.
func parseRecord(data []byte, joliet bool) record {
	name := data[33 : 33+int(data[32])]
	r := record{
		file:   file{sector: int64(binary.LittleEndian.Uint32(data[2:])) + int64(data[1]), size: int64(binary.LittleEndian.Uint32(data[10:]))},
		folder: data[25]&2 != 0, more: data[25]&0x80 != 0, name: string(name),
	}
	if joliet && len(name) > 1 {
		wide := make([]uint16, len(name)/2)
		for i := range wide {
			wide[i] = binary.BigEndian.Uint16(name[2*i:])
		}
		r.name = string(utf16.Decode(wide))
	}
	r.name, _, _ = strings.Cut(r.name, ";")
	r.name = strings.TrimSuffix(r.name, ".")
	return r
}

// records reads a folder.
func (d *disc) records(folder record) ([]record, error) {
	data, err := d.image.extent(folder.sector, folder.size)
	if err != nil {
		return nil, err
	}
	var records []record
	for at := 0; at < len(data); {
		length := int(data[at])
		if length == 0 { // the rest of a sector is empty
			at = (at/sectorSize + 1) * sectorSize
			continue
		}
		if length < 34 || at+length > len(data) || 33+int(data[at+32]) > length {
			return nil, fmt.Errorf("the iso file is damaged: a folder's record at byte %d of sector %d", at, folder.sector)
		}
		r := parseRecord(data[at:at+length], d.joliet)
		r.at, r.offset = folder.sector+int64(at/sectorSize), int64(at%sectorSize)
		records = append(records, r)
		at += length
	}
	return records, nil
}

// look follows path.
func (d *disc) look(path []string) (record, error) {
	here := d.root
	for i, name := range path {
		records, err := d.records(here)
		if err != nil {
			return record{}, err
		}
		at := slices.IndexFunc(records, func(r record) bool {
			return strings.EqualFold(r.name, name) && r.folder == (i < len(path)-1)
		})
		if at < 0 {
			return record{}, ErrNotFound
		}
		here = records[at]
	}
	return here, nil
}

func (d *disc) find(path []string) (file, error) {
	r, err := d.look(path)
	if err == nil && r.more {
		return file{}, fmt.Errorf("%s is in several pieces, which is not supported", strings.Join(path, "/"))
	}
	return r.file, err
}

func (d *disc) point(path []string, other file) error {
	r, err := d.look(path)
	if err != nil {
		return err
	}
	if r.more {
		return fmt.Errorf("%s is in several pieces, which is not supported", strings.Join(path, "/"))
	}
	data, err := d.image.read(r.at)
	if err != nil {
		return err
	}
	field := data[r.offset:]
	field[1] = 0 // an extended attribute record would lie before the content
	for at, value := range map[int]int64{2: other.sector, 10: other.size} {
		binary.LittleEndian.PutUint32(field[at:], uint32(value))
		binary.BigEndian.PutUint32(field[at+4:], uint32(value))
	}
	d.image.write(r.at, data)
	return nil
}
