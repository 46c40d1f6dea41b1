package image

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
)

// MaxCluster is the largest cluster in bytes. Every cluster size divides it.
const MaxCluster = 1 << maxClusterBits

// Unit is a cluster, or more.
func (i *Image) Unit() int64 { return max(MinUnit, i.clusterSize()) }

// Taken is how many bytes of the file the disk's bytes from off to end take, both multiples of Unit or the disk's end.
func (i *Image) Taken(off, end int64) (bytes int64, err error) {
	for ; off < end; off += i.clusterSize() {
		entry, bitmap, err := i.entry(off)
		if err != nil {
			return 0, err
		}
		switch {
		case i.holdsNothing(entry, bitmap):
		case entry&compressedFlag != 0:
			_, length := i.packedAt(entry)
			bytes += length
		default:
			bytes += i.clusterSize()
		}
	}
	return bytes, nil
}

// Read fills p with the disk's bytes at off through r, which is the caller's own reader of
// the file. Off is a multiple of Unit, p at most that long. It reports whether
// anything is allocated there; where nothing is, p is left as it was.
func (i *Image) Read(r io.ReaderAt, p []byte, off int64) (allocated bool, err error) {
	return readClusters(i, r, p, off)
}

func (i *Image) readCluster(pending *stretch, part []byte, off int64) (bool, error) {
	entry, bitmap, err := i.entry(off)
	if err != nil || i.holdsNothing(entry, bitmap) {
		return false, err
	}
	return true, i.readEntry(pending, part, entry, bitmap)
}

// holdsNothing reports whether a cluster reads as zeros for want of anything else.
func (i *Image) holdsNothing(entry, bitmap uint64) bool {
	switch {
	case entry&compressedFlag != 0:
		return false
	case i.extended:
		return uint32(bitmap) == 0
	}
	return entry&zeroFlag != 0 || entry&offsetMask == 0
}

// readEntry reads the cluster of an L2 entry, or notes it to be read with its neighbours.
func (i *Image) readEntry(pending *stretch, part []byte, entry, bitmap uint64) error {
	host := int64(entry & offsetMask)
	switch {
	case entry&compressedFlag != 0:
		return i.readCompressed(pending.reader, part, entry)
	case i.extended:
		return i.readSubclusters(pending, part, host, bitmap)
	}
	if err := i.checkData(host); err != nil {
		return err
	}
	return pending.add(part, host)
}

// entry returns the L2 entry of the cluster at off, and its subcluster bitmap where there are such.
func (i *Image) entry(off int64) (entry, bitmap uint64, err error) {
	index := off >> i.clusterBits
	table := i.l1[index/int64(i.l2Entries())]
	if table == 0 {
		return 0, 0, nil
	}
	raw, err := i.cache.get(int64(table), i.clusterSize())
	if err != nil {
		return 0, 0, i.cut(err, "a table", int64(table))
	}
	n := 8 * int(index%int64(i.l2Entries())) * i.l2Words()
	if i.extended {
		bitmap = binary.BigEndian.Uint64(raw[n+8:])
	}
	return binary.BigEndian.Uint64(raw[n:]), bitmap, nil
}

// checkData refuses a data cluster that cannot be one.
func (i *Image) checkData(host int64) error {
	if err := i.checkCluster(host, "a data cluster"); err != nil {
		return err
	}
	if _, found := slices.BinarySearch(i.tables, host); found {
		return invalid("a data cluster at byte %d stands on a table", host)
	}
	return nil
}

// readSubclusters reads a cluster of 32 subclusters, each allocated, zero, or nothing.
func (i *Image) readSubclusters(pending *stretch, part []byte, host int64, bitmap uint64) error {
	taken, zero := uint32(bitmap), uint32(bitmap>>32)
	if taken&zero != 0 {
		return invalid("a subcluster is both allocated and zero")
	}
	if err := i.checkData(host); err != nil {
		return err
	}
	size := i.clusterSize() / 32
	for n := range int64(32) {
		if n*size >= int64(len(part)) {
			break
		}
		sub := part[n*size : min((n+1)*size, int64(len(part)))]
		if taken&(1<<n) == 0 {
			clear(sub)
			continue
		}
		if err := pending.add(sub, host+n*size); err != nil {
			return err
		}
	}
	return nil
}

// packedAt is where in the file the compressed cluster of an L2 entry begins, and its bytes up to a sector's end.
func (i *Image) packedAt(entry uint64) (host, length int64) {
	shift := 62 - (i.clusterBits - 8)
	host = int64(entry & (1<<shift - 1))
	sectors := int64(entry & (compressedFlag - 1) >> shift)
	return host, (sectors+1)*512 - host%512
}

// readCompressed unpacks a compressed cluster into part, which may be shorter at the disk's end.
func (i *Image) readCompressed(r io.ReaderAt, part []byte, entry uint64) error {
	host, length := i.packedAt(entry)
	if host >= i.fileSize {
		return invalid("a compressed cluster is said to stand at byte %d, the file has only %d; it is truncated", host, i.fileSize)
	}
	length = min(length, i.fileSize-host)
	codec, err := i.codecs.take()
	if err != nil {
		return err
	}
	defer i.codecs.put(codec)
	packed := codec.input(length)
	n, err := r.ReadAt(packed, host)
	if n == 0 || n < len(packed) && err != io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
		return i.cut(cmp.Or(err, io.ErrUnexpectedEOF), "a compressed cluster", host)
	}
	packed = packed[:n] // the file's last cluster may lack its padding
	if err := codec.unpack(part, packed); err != nil {
		return invalid("the compressed cluster at byte %d cannot be unpacked (%w)", host, err)
	}
	return nil
}
