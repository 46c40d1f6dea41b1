package image

import (
	"bufio"
	"io"
)

// InOrder reports whether head begins a VMDK that can be read from its first byte to its
// last: each grain says where it belongs, and the tables come at the end.
func InOrder(head []byte) bool {
	v, err := parseVMDKHeader(head)
	return err == nil && v.atEnd && v.flags&vmdkCompressed != 0
}

// Ordered is the disk of a VMDK that comes in order.
type Ordered struct {
	*vmdk
	stream *bufio.Reader
	codec  codec
	pos    int64  // in the file
	given  int64  // bytes of the disk that Read has given
	buffer []byte // of a grain
	at     int64  // where on the disk the current grain begins
	rest   []byte // what of it is not given yet
	ended  bool   // the mark of the end has come
}

// NewOrdered reads the header and the descriptor of a VMDK for which InOrder holds.
func NewOrdered(stream *bufio.Reader) (*Ordered, error) {
	o := &Ordered{stream: stream}
	head := make([]byte, vmdkHeaderSize)
	if err := o.read(head, "its header"); err != nil {
		return nil, err
	}
	var err error
	if o.vmdk, err = parseVMDKHeader(head); err != nil {
		return nil, err
	}
	if o.descriptor.offset < vmdkHeaderSize || o.overhead < o.descriptor.end() {
		return nil, VMDK.invalid("its descriptor ends at byte %d, its data begins at %d", o.descriptor.end(), o.overhead)
	}
	if err := o.skip(o.descriptor.offset - o.pos); err != nil {
		return nil, err
	}
	text := make([]byte, o.descriptor.length)
	if err := o.read(text, o.descriptor.what); err != nil {
		return nil, err
	}
	if err := checkVMDKDescriptor(text); err != nil {
		return nil, err
	}
	o.buffer = make([]byte, o.grain)
	return o, o.skip(o.overhead - o.pos)
}

// Read gives the disk's bytes, zeros where there is no grain.
func (o *Ordered) Read(p []byte) (int, error) {
	for o.given < o.size && len(o.rest) == 0 && !o.ended {
		if err := o.next(); err != nil {
			return 0, err
		}
	}
	if o.given == o.size {
		return 0, io.EOF
	}
	n := 0
	if len(o.rest) > 0 && o.given == o.at {
		n = copy(p, o.rest)
		o.rest, o.at = o.rest[n:], o.at+int64(n)
	} else {
		until := o.size
		if len(o.rest) > 0 {
			until = o.at
		}
		n = int(min(int64(len(p)), until-o.given))
		clear(p[:n])
	}
	o.given += int64(n)
	return n, nil
}

// next reads one marker and what follows it.
func (o *Ordered) next() error {
	host := o.pos
	p := make([]byte, vmdkMarker)
	if err := o.read(p[:vmdkGrainMarker], "a marker"); err != nil {
		return err
	}
	if m := parseVMDKMarker(p[:vmdkGrainMarker]); m.size > 0 {
		return o.nextGrain(m, host)
	}
	if err := o.read(p[vmdkGrainMarker:], "a marker"); err != nil {
		return err
	}
	m := parseVMDKMarker(p)
	switch {
	case m.kind == vmdkMarkEnd:
		o.ended = true
		return nil
	case m.kind > vmdkMarkFooter:
		return VMDK.invalid("the marker at byte %d is of the unknown kind %d", host, m.kind)
	case m.value > vmdkMaxDirectory*4/vmdkSector:
		return VMDK.invalid("the marker at byte %d is said to be before %d sectors", host, m.value)
	}
	return o.skip(vmdkSector - vmdkMarker + int64(m.value)*vmdkSector)
}

// nextGrain unpacks the grain whose marker stands at host.
func (o *Ordered) nextGrain(m vmdkMark, host int64) error {
	if err := o.checkPacked(m, host); err != nil {
		return err
	}
	if m.value > uint64(o.size-1)/vmdkSector || int64(m.value)*vmdkSector%o.grain != 0 {
		return VMDK.invalid("the grain at byte %d is said to be sector %d of a disk of %d bytes", host, m.value, o.size)
	}
	o.at = int64(m.value) * vmdkSector
	if o.at < o.given {
		return VMDK.unsupported("comes as a stream and has its grains in no order (the one at byte %d is the disk's at %d), "+
			"unless its server answers range requests and no checksum is given", host, o.at)
	}
	packed := o.codec.input(int64(m.size))
	if err := o.read(packed, "a grain"); err != nil {
		return err
	}
	part := o.buffer[:min(o.grain, o.size-o.at)]
	if err := o.codec.unpackGrain(part, packed, o.grain, host); err != nil {
		return err
	}
	o.rest = part
	return o.skip((vmdkSector - o.pos%vmdkSector) % vmdkSector)
}

func (o *Ordered) read(p []byte, what string) error {
	n, err := io.ReadFull(o.stream, p)
	o.pos += int64(n)
	if err != nil {
		return VMDK.cut(err, what, o.pos)
	}
	return nil
}

func (o *Ordered) skip(length int64) error {
	for length > 0 {
		n, err := o.stream.Discard(int(min(length, 1<<20)))
		o.pos += int64(n)
		length -= int64(n)
		if err != nil {
			return VMDK.cut(err, "a part", o.pos)
		}
	}
	return nil
}
