package iso

import (
	"bytes"
	"errors"
	"fmt"
)

// Parts of the boot catalogue of El Torito, whose entries have 32 bytes each.
const (
	entrySize      = 32
	catalogueStart = 1    // the first entry's kind
	sectionMore    = 0x90 // a section that others follow
	sectionLast    = 0x91
	bootable       = 0x88
	platformEFI    = 0xef
)

// bootSystem names El Torito in the boot descriptor.
var bootSystem = []byte("EL TORITO SPECIFICATION")

// BootEFI makes the firmware of EFI boot from the file at path.
func (m *Image) BootEFI(path ...string) error {
	f, err := m.find(path)
	if err != nil {
		return fmt.Errorf("looking for %v: %w", path, err)
	}
	sector, err := m.catalogue()
	if err != nil {
		return err
	}
	data, err := m.read(sector)
	if err != nil {
		return err
	}
	if data[0] != catalogueStart || data[30] != 0x55 || data[31] != 0xaa {
		return errors.New("the boot catalogue of the iso file is damaged")
	}
	entries := efiEntries(data)
	if len(entries) == 0 {
		return errors.New("the iso file has no boot entry for EFI")
	}
	for _, at := range entries {
		le.PutUint32(data[at+8:], uint32(f.sector))
		if count := le.Uint16(data[at+6:]); count > 1 { // some write the size, most only that there is one
			le.PutUint16(data[at+6:], uint16(min(f.sectors()*sectorSize/512, 0xffff)))
		}
	}
	m.write(sector, data)
	return nil
}

// catalogue returns the sector of the boot catalogue.
func (m *Image) catalogue() (int64, error) {
	for sector := int64(firstVolume); sector < min(lastVolume, m.sectors); sector++ {
		data, err := m.read(sector)
		if err != nil {
			return 0, err
		}
		if string(data[1:6]) != "CD001" || data[0] == volumeEnd {
			break
		}
		if data[0] == volumeBoot && bytes.HasPrefix(data[7:], bootSystem) {
			return int64(le.Uint32(data[71:])), nil
		}
	}
	return 0, errors.New("the iso file has no boot catalogue, so nothing boots from it")
}

// efiEntries returns where in the catalogue the entries stand from which EFI boots.
func efiEntries(data []byte) []int {
	var found []int
	platform, left := data[1], 1
	for at := entrySize; at+entrySize <= len(data); at += entrySize {
		switch kind := data[at]; {
		case left > 0 && kind == bootable:
			if platform == platformEFI {
				found = append(found, at)
			}
			left--
		case kind == sectionMore || kind == sectionLast:
			platform, left = data[at+1], int(le.Uint16(data[at+2:]))
		case left > 0:
			left--
		}
	}
	return found
}
