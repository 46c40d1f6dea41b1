package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Geometry of new images: QEMU's own defaults.
const (
	clusterBits   = 16
	cluster       = 1 << clusterBits
	l2Coverage    = cluster * cluster / 8 // bytes of disk behind one L1 entry
	refcountOrder = 4                     // 1<<4 = 16 bits a refcount
)

// Backing is the image under an overlay.
type Backing struct {
	Path string
	// Format is "raw" or "qcow2"; it is written down so that nobody guesses it.
	Format string
}

// Create writes an empty qcow2 image of size bytes to the new file path, as an
// overlay on backing unless that is nil. The backing file is not opened.
func Create(path string, size int64, backing *Backing) (err error) {
	if err := checkSize(path, size); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o660)
	if err != nil {
		return fmt.Errorf("creating image: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return Write(file, size, backing)
}

// Write is Create for a file that is open, and empty.
func Write(file *os.File, size int64, backing *Backing) error {
	if err := checkSize(file.Name(), size); err != nil {
		return err
	}
	l1Entries := (size + l2Coverage - 1) / l2Coverage
	l1Clusters := (l1Entries*8 + cluster - 1) / cluster
	used := 3 + l1Clusters // header, refcount table, refcount block, L1 table
	first, err := firstCluster(size, l1Entries, backing)
	if err != nil {
		return fmt.Errorf("creating %s: %w", file.Name(), err)
	}
	table := binary.BigEndian.AppendUint64(nil, 2*cluster)
	counts := bytes.Repeat([]byte{0, 1}, int(used))
	for i, content := range [][]byte{first, table, counts} {
		if _, err := file.WriteAt(content, int64(i)*cluster); err != nil {
			return fmt.Errorf("writing image: %w", err)
		}
	}
	if err := file.Truncate(used * cluster); err != nil {
		return fmt.Errorf("writing image: %w", err)
	}
	return nil
}

func checkSize(name string, size int64) error {
	if size <= 0 || size > MaxSize {
		return fmt.Errorf("creating %s: size of %d bytes is outside 1 to %d", name, size, int64(MaxSize))
	}
	return nil
}

func firstCluster(size, l1Entries int64, backing *Backing) ([]byte, error) {
	h := header{
		Version: 3, ClusterBits: clusterBits, Size: uint64((size + 511) &^ 511),
		L1Entries: uint32(l1Entries), L1Offset: 3 * cluster, RefcountOffset: cluster, RefcountClust: 1,
		RefcountOrder: refcountOrder, HeaderLength: 104,
	}
	copy(h.Magic[:], magic)
	var extensions []byte
	if backing != nil {
		extensions = binary.BigEndian.AppendUint32(extensions, extensionBackingFormat)
		extensions = binary.BigEndian.AppendUint32(extensions, uint32(len(backing.Format)))
		extensions = append(extensions, backing.Format...)
		extensions = append(extensions, make([]byte, -len(backing.Format)&7)...)
	}
	extensions = append(extensions, make([]byte, 8)...) // the end
	if backing != nil {
		if len(backing.Path) > 1023 {
			return nil, fmt.Errorf("backing file's path of %d bytes is over 1023", len(backing.Path))
		}
		h.BackingOffset = uint64(h.HeaderLength) + uint64(len(extensions))
		h.BackingSize = uint32(len(backing.Path))
		extensions = append(extensions, backing.Path...)
	}
	var out bytes.Buffer
	if err := binary.Write(&out, binary.BigEndian, h); err != nil {
		return nil, fmt.Errorf("encoding header: %w", err)
	}
	out.Write(extensions)
	return out.Bytes(), nil
}
