package downward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	// DiskSize is the disk's size in bytes.
	DiskSize = 256 << 10
	// headerSize is the length of what is before the document: signature, whether it is being
	// written, the sum of its bytes and its length, of four bytes each.
	headerSize = 16
	// reserved is how much of the disk its readers leave to the header.
	reserved = 24
)

var signature = [4]byte{'m', 'v', 'b', 'd'}

// header is what is before the document, with the most significant byte first.
type header struct {
	Signature [4]byte
	Busy      uint32
	Sum       uint32
	Length    uint32
}

// CreateDisk makes the disk at path, with nothing on it yet.
func CreateDisk(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o660)
	if err != nil {
		return fmt.Errorf("making the disk of metrics: %w", err)
	}
	empty := []byte("<metrics></metrics>")
	if err := errors.Join(file.Truncate(DiskSize), WriteDisk(file, empty), file.Close()); err != nil {
		return fmt.Errorf("making the disk of metrics: %w", err)
	}
	return nil
}

// WriteDisk puts document on the disk. Whoever reads meanwhile is told to read again.
func WriteDisk(disk io.WriterAt, document []byte) error {
	body := slices.Concat(document, []byte{'\n'})
	if len(body) > DiskSize-reserved {
		return fmt.Errorf("the metrics are %d bytes long; the disk holds %d", len(body), DiskSize-reserved)
	}
	head := header{Signature: signature, Busy: 1, Length: uint32(len(body))} //nolint:gosec // bounded above
	for _, b := range body {
		head.Sum += uint32(b)
	}
	if err := writeHeader(disk, head); err != nil {
		return err
	}
	if _, err := disk.WriteAt(body, headerSize); err != nil {
		return fmt.Errorf("writing metrics: %w", err)
	}
	head.Busy = 0
	return writeHeader(disk, head)
}

func writeHeader(disk io.WriterAt, head header) error {
	data, err := binary.Append(nil, binary.BigEndian, head)
	if err != nil {
		return fmt.Errorf("encoding the header of metrics: %w", err)
	}
	if _, err := disk.WriteAt(data, 0); err != nil {
		return fmt.Errorf("writing the header of metrics: %w", err)
	}
	return nil
}
