package iso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Places in an image, in bytes: of volume descriptors, and in them and in records.
const (
	firstDescriptor = 16 * sector

	descriptorSupplementary = 2 // kind of the descriptor of Joliet
	descriptorEnd           = 255
	atTableSize             = 132
	atTable                 = 140

	atLocation = 2
	atSize     = 10
	atFlags    = 25
	atNameSize = 32
	atName     = 33

	flagFolder = 2
)

// errDamaged says that an image is not as its maker should have made it.
var errDamaged = errors.New("the new image has a damaged table of folders")

// folder is a line of the table of folders.
type folder struct {
	location uint32
	parent   int // index in the table
	name     []byte
}

// joinJoliet repairs the tree of Joliet, which Windows reads: the image's maker has the folders
// in its folders be those of the other tree, with short names in another code. Its table of
// folders is right.
func joinJoliet(image *os.File) error {
	table, err := jolietTable(image)
	if err != nil {
		return err
	}
	folders, err := parseTable(table)
	if err != nil {
		return err
	}
	for i := 1; i < len(folders); i++ { // the first is the root
		if err := join(image, folders[folders[i].parent], folders[i]); err != nil {
			return err
		}
	}
	return nil
}

// jolietTable reads the table of folders of Joliet.
func jolietTable(image *os.File) ([]byte, error) {
	descriptor := make([]byte, sector)
	for at := int64(firstDescriptor); descriptor[0] != descriptorSupplementary; at += sector {
		if _, err := image.ReadAt(descriptor, at); err != nil {
			return nil, fmt.Errorf("reading descriptors: %w", err)
		}
		if descriptor[0] == descriptorEnd {
			return nil, errDamaged
		}
	}
	table := make([]byte, min(binary.LittleEndian.Uint32(descriptor[atTableSize:]), padding))
	location := int64(binary.LittleEndian.Uint32(descriptor[atTable:])) * sector
	if _, err := image.ReadAt(table, location); err != nil {
		return nil, fmt.Errorf("reading the table of folders: %w", err)
	}
	return table, nil
}

func parseTable(table []byte) ([]folder, error) {
	var folders []folder
	for len(table) > 8 {
		size := int(table[0])
		if len(table) < 8+size {
			return nil, errDamaged
		}
		parent := int(binary.LittleEndian.Uint16(table[6:])) - 1
		if parent < 0 || parent > len(folders) {
			return nil, errDamaged
		}
		folders = append(folders, folder{location: binary.LittleEndian.Uint32(table[2:]), parent: parent, name: table[8 : 8+size]})
		table = table[min(8+size+size%2, len(table)):]
	}
	return folders, nil
}

// join makes the record of child in parent that of child's own folder.
func join(image *os.File, parent, child folder) error {
	own, err := recordAt(image, int64(child.location)*sector)
	if err != nil {
		return err
	}
	at := int64(parent.location) * sector
	self, err := recordAt(image, at)
	if err != nil {
		return err
	}
	if len(own) == 0 || len(self) == 0 {
		return errDamaged
	}
	for end := at + int64(binary.LittleEndian.Uint32(self[atSize:])); at < end; {
		record, err := recordAt(image, at)
		if err != nil {
			return err
		}
		if len(record) == 0 { // the rest of a sector is empty
			at = (at/sector + 1) * sector
			continue
		}
		if record[atFlags]&flagFolder != 0 && bytes.Equal(record[atName:atName+int(record[atNameSize])], child.name) {
			copy(record[atLocation:atSize+8], own[atLocation:atSize+8])
			if _, err := image.WriteAt(record, at); err != nil {
				return fmt.Errorf("writing a folder: %w", err)
			}
			return nil
		}
		at += int64(len(record))
	}
	return errDamaged
}

// recordAt reads the record of a folder or file, of no length where there is none.
func recordAt(image *os.File, at int64) ([]byte, error) {
	record := make([]byte, 255)
	n, err := image.ReadAt(record, at)
	if n == 0 {
		return nil, fmt.Errorf("reading a folder: %w", err)
	}
	size := int(record[0])
	if size != 0 && (size <= atName || size > n || atName+int(record[atNameSize]) > size) {
		return nil, errDamaged
	}
	return record[:size], nil
}
