package xz

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Control bytes of LZMA2 chunks.
const (
	controlEnd       = 0
	controlRawReset  = 1 // not compressed, new dictionary
	controlRaw       = 2
	controlLZMA      = 0x80
	packedMax        = 64 << 10
	resetNothing     = 0
	resetProperties  = 2
	resetDictionary  = 3
	controlResetMask = 3
)

// lzma2 decodes the chunks of a block.
type lzma2 struct {
	lzma
	window
	packed         []byte
	needDictionary bool // the next chunk must begin a dictionary
	needProperties bool // the next compressed chunk must give properties
	needReset      bool // the next compressed chunk must reset the state
}

// begin prepares for a block with a dictionary of the given size.
func (d *lzma2) begin(dictionary int64) {
	d.prepare(dictionary)
	d.needDictionary, d.needProperties, d.needReset = true, true, true
}

// chunk decodes the next chunk into the window, all of which was taken. It returns io.EOF after the last.
func (d *lzma2) chunk(r *counted) error {
	control, err := r.ReadByte()
	if err != nil {
		return cut(err)
	}
	switch {
	case control == controlEnd:
		return io.EOF
	case control == controlRawReset || control == controlRaw:
		return d.raw(r, control)
	case control >= controlLZMA:
		return d.compressed(r, control)
	}
	return fmt.Errorf("%w: unknown chunk %#x", ErrFormat, control)
}

func (d *lzma2) raw(r *counted, control byte) error {
	if control == controlRawReset {
		d.forget()
		d.needDictionary = false
	} else if d.needDictionary {
		return fmt.Errorf("%w: the first chunk begins no dictionary", ErrFormat)
	}
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return cut(err)
	}
	data, err := d.read(r, int(binary.BigEndian.Uint16(head[:]))+1)
	if err != nil {
		return err
	}
	d.write(data)
	return nil
}

func (d *lzma2) compressed(r *counted, control byte) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return cut(err)
	}
	size := int(control&0x1f)<<16 + int(binary.BigEndian.Uint16(head[:])) + 1
	packed := int(binary.BigEndian.Uint16(head[2:])) + 1
	if err := d.applyResets(r, control>>5&controlResetMask); err != nil {
		return err
	}
	data, err := d.read(r, packed)
	if err != nil {
		return err
	}
	if !d.start(data) || !d.decode(&d.window, size) || !d.finished() {
		return fmt.Errorf("%w: a chunk cannot be decoded", ErrFormat)
	}
	return nil
}

func (d *lzma2) applyResets(r *counted, reset byte) error {
	if reset == resetDictionary {
		d.forget()
		d.needDictionary = false
	}
	if reset >= resetProperties {
		b, err := r.ReadByte()
		if err != nil {
			return cut(err)
		}
		if !d.properties(b) {
			return fmt.Errorf("%w: properties %#x", ErrFormat, b)
		}
		d.needProperties = false
	}
	if reset != resetNothing {
		d.reset()
		d.needReset = false
	}
	if d.needDictionary || d.needProperties || d.needReset {
		return fmt.Errorf("%w: a chunk goes on with what never began", ErrFormat)
	}
	return nil
}

func (d *lzma2) read(r *counted, n int) ([]byte, error) {
	if d.packed == nil {
		d.packed = make([]byte, packedMax)
	}
	if _, err := io.ReadFull(r, d.packed[:n]); err != nil {
		return nil, cut(err)
	}
	return d.packed[:n], nil
}
