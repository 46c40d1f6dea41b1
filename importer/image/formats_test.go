package image

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/corpus"
	"github.com/slipway-vm/slipway/tests/fixture/diskimage"
)

// mendVHDX makes the checksums of a VHDX right, and those of both headers.
func mendVHDX(file []byte) {
	for _, part := range []struct{ at, length int }{
		{vhdxHeader1, vhdxHeaderSize}, {vhdxHeader2, vhdxHeaderSize}, {vhdxRegions1, vhdxTableSize}, {vhdxRegions2, vhdxTableSize},
	} {
		p := file[part.at : part.at+part.length]
		binary.LittleEndian.PutUint32(p[4:], 0)
		binary.LittleEndian.PutUint32(p[4:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	}
}

// mendVHD makes the checksums of a dynamic VHD's footer and header right.
func mendVHD(file []byte) {
	for _, part := range []struct{ at, length, sum int }{{0, vhdFooterSize, vhdFooterSum}, {vhdFooterSize, vhdHeaderSize, vhdHeaderSum}} {
		p, sum := file[part.at:part.at+part.length], uint32(0)
		binary.BigEndian.PutUint32(p[part.sum:], 0)
		for _, b := range p {
			sum += uint32(b)
		}
		binary.BigEndian.PutUint32(p[part.sum:], ^sum)
	}
}

// change is a change to a good image.
type change struct {
	format  Format
	file    []byte
	at      int
	bytes   []byte
	reason  transfer.Reason
	message string
}

func le32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
func le64(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
func be64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestImagesThatLie changes one field of a good image of each format.
func TestImagesThatLie(t *testing.T) {
	disk := smallDisk()
	vdi, vhd := made(t, disk, "vdi"), made(t, disk, "vpc")
	vhdx := made(t, disk, "vhdx", "-o", "block_size=1M,log_size=1M")
	vmdk, packed := made(t, disk, "vmdk"), diskimage.StreamVMDK(disk, nil)
	vdiMapAt := int(binary.LittleEndian.Uint32(vdi[vdiMap:]))
	vhdBAT := int(binary.BigEndian.Uint64(vhd[vhdFooterSize+16:]))
	vhdxBlocks, vhdxItems := region(vhdx, vhdxBAT), region(vhdx, vhdxMetadata)
	item := func(id guid) int {
		at := vhdxItems + bytes.Index(vhdx[vhdxItems:], id[:])
		return vhdxItems + int(binary.LittleEndian.Uint32(vhdx[at+16:]))
	}
	directory := int(binary.LittleEndian.Uint64(vmdk[56:])) * vmdkSector
	table := int(binary.LittleEndian.Uint32(vmdk[directory:])) * vmdkSector
	footer := len(packed) - 2*vmdkSector
	packedDirectory := int(binary.LittleEndian.Uint64(packed[footer+56:])) * vmdkSector
	packedTable := int(binary.LittleEndian.Uint32(packed[packedDirectory:])) * vmdkSector
	firstGrain := int(binary.LittleEndian.Uint32(packed[packedTable:])) * vmdkSector
	const broken, refused = transfer.InvalidImage, transfer.WrongFormat
	for name, c := range map[string]change{
		"vdi of version 2":               {VDI, vdi, vdiVersion, le32(2 << 16), refused, "version 2.0"},
		"vdi differencing":               {VDI, vdi, vdiType, le32(vdiDiffering), refused, "difference"},
		"vdi linked":                     {VDI, vdi, vdiLink, le32(7), refused, "difference"},
		"vdi of no kind":                 {VDI, vdi, vdiType, le32(9), broken, "kind 9"},
		"vdi with sectors of 4096":       {VDI, vdi, vdiSectorSize, le32(4096), refused, "4096"},
		"vdi with extra data":            {VDI, vdi, vdiBlockExtra, le32(512), refused, "512"},
		"vdi of no bytes":                {VDI, vdi, vdiDiskSize, le64(0), broken, "no bytes"},
		"vdi too large":                  {VDI, vdi, vdiDiskSize, le64(1 << 63), broken, "said to have"},
		"vdi larger than its map":        {VDI, vdi, vdiDiskSize, le64(1 << 40), broken, "needs 1048576"},
		"vdi with odd blocks":            {VDI, vdi, vdiBlockSize, le32(1000), broken, "1000"},
		"vdi with blocks of nothing":     {VDI, vdi, vdiBlockSize, le32(0), broken, "blocks"},
		"vdi map on its header":          {VDI, vdi, vdiMap, le32(4), broken, "map"},
		"vdi map behind its end":         {VDI, vdi, vdiMap, append(le32(1<<31), le32(1<<31+4096)...), broken, "truncated"},
		"vdi data on its map":            {VDI, vdi, vdiData, le32(uint32(vdiMapAt)), broken, "data"},
		"vdi block beyond those counted": {VDI, vdi, vdiMapAt, le32(70000), broken, "70000"},
		"vdi counts too many blocks":     {VDI, vdi, vdiAllocated, le32(7), "", ""},
		"vdi block behind its end":       {VDI, put(vdi, vdiMapAt, le32(5)), vdiAllocated, le32(7), broken, "truncated"},

		"vhd with a wrong checksum":      {VHD, vhd, vhdFooterSum, be32(1), broken, "checksum"},
		"vhd header with a wrong one":    {VHD, vhd, vhdFooterSize + vhdHeaderSum, be32(1), broken, "checksum"},
		"vhd differencing":               {VHD, vhd, 60, be32(vhdDiffering), refused, "difference"},
		"vhd fixed at its beginning":     {VHD, vhd, 60, be32(vhdFixed), broken, "kind 2"},
		"vhd of version 2":               {VHD, vhd, 12, be32(2 << 16), refused, "version 2.0"},
		"vhd of no bytes":                {VHD, vhd, 48, be64(0), broken, "no bytes"},
		"vhd larger than its table":      {VHD, vhd, 48, be64(1 << 50), broken, "needs"},
		"vhd header behind its end":      {VHD, vhd, 16, be64(1 << 40), broken, "truncated"},
		"vhd header nowhere":             {VHD, vhd, 16, be64(1<<64 - 1), broken, "header"},
		"vhd header on itself":           {VHD, vhd, 16, be64(0), broken, "header"},
		"vhd table behind its end":       {VHD, vhd, vhdFooterSize + 16, be64(1 << 40), broken, "truncated"},
		"vhd table on the header":        {VHD, vhd, vhdFooterSize + 16, be64(vhdFooterSize), broken, "overlaps"},
		"vhd table of no use":            {VHD, vhd, vhdFooterSize + 28, be32(0), broken, "needs"},
		"vhd with odd blocks":            {VHD, vhd, vhdFooterSize + 32, be32(12345), broken, "12345"},
		"vhd with huge blocks":           {VHD, vhd, vhdFooterSize + 32, be32(1 << 31), broken, "blocks"},
		"vhd block on its table":         {VHD, vhd, vhdBAT, be32(1), broken, "overlaps"},
		"vhd block behind its end":       {VHD, vhd, vhdBAT, be32(1 << 30), broken, "truncated"},
		"vhd block that ends behind its": {VHD, vhd, vhdBAT, be32(uint32(len(vhd)/512 - 2)), broken, "truncated"},

		"vhdx headers of no use":       {VHDX, put(vhdx, vhdxHeader1, []byte("x")), vhdxHeader2, []byte("x"), broken, "headers"},
		"vhdx with a log":              {VHDX, put(vhdx, vhdxHeader1+48, []byte{1}), vhdxHeader2 + 48, []byte{1}, refused, "log"},
		"vhdx regions of no use":       {VHDX, put(vhdx, vhdxRegions1, []byte("x")), vhdxRegions2, []byte("x"), broken, "regions"},
		"vhdx with too many regions":   {VHDX, vhdx, vhdxRegions1 + 8, le32(1 << 20), broken, "1048576"},
		"vhdx region behind its end":   {VHDX, vhdx, vhdxRegions1 + 32, le64(1 << 40), broken, "truncated"},
		"vhdx region on its header":    {VHDX, vhdx, vhdxRegions1 + 32, le64(0), broken, "overlaps"},
		"vhdx regions on each other":   {VHDX, vhdx, vhdxRegions1 + 32, vhdx[vhdxRegions1+64 : vhdxRegions1+72], broken, "overlaps"},
		"vhdx with an unknown region":  {VHDX, vhdx, vhdxRegions1 + 16, append(make([]byte, 28), 1), refused, "region"},
		"vhdx without a table":         {VHDX, vhdx, vhdxRegions1 + 8, le32(0), broken, "no table"},
		"vhdx without metadata":        {VHDX, vhdx, vhdxItems, []byte("x"), broken, "metadata"},
		"vhdx of version 2":            {VHDX, put(vhdx, vhdxHeader1+66, []byte{2}), vhdxHeader2 + 66, []byte{2}, refused, "version 2"},
		"vhdx differencing":            {VHDX, vhdx, item(vhdxParameters) + 4, le32(2), refused, "difference"},
		"vhdx with small blocks":       {VHDX, vhdx, item(vhdxParameters), le32(4096), broken, "4096"},
		"vhdx of no bytes":             {VHDX, vhdx, item(vhdxDiskSize), le64(0), broken, "no bytes"},
		"vhdx too large":               {VHDX, vhdx, item(vhdxDiskSize), le64(1 << 60), broken, "said to have"},
		"vhdx larger than its table":   {VHDX, vhdx, item(vhdxDiskSize), le64(32 << 40), broken, "needs"},
		"vhdx with odd sectors":        {VHDX, vhdx, item(vhdxLogical), le32(1000), broken, "1000"},
		"vhdx block on its table":      {VHDX, vhdx, vhdxBlocks, le64(uint64(vhdxBlocks) | vhdxPresent), broken, "overlaps"},
		"vhdx block on its header":     {VHDX, vhdx, vhdxBlocks, le64(vhdxPresent), broken, "overlaps"},
		"vhdx block behind its end":    {VHDX, vhdx, vhdxBlocks, le64(1<<40 | vhdxPresent), broken, "truncated"},
		"vhdx block beyond any file":   {VHDX, vhdx, vhdxBlocks, le64(1<<63 | vhdxPresent), broken, "MiB"},
		"vhdx block of another image":  {VHDX, vhdx, vhdxBlocks, le64(vhdxPartially), broken, "another image"},
		"vhdx block in no state":       {VHDX, vhdx, vhdxBlocks, le64(4), broken, "state 4"},
		"vhdx block that is zero":      {VHDX, vhdx, vhdxBlocks, le64(2), "", ""},
		"vhdx first header is damaged": {VHDX, vhdx, vhdxHeader1, []byte("x"), "", ""},
		"vhdx first regions damaged":   {VHDX, vhdx, vhdxRegions1, []byte("x"), "", ""},

		"vmdk of version 9":             {VMDK, vmdk, 4, le32(9), refused, "version 9"},
		"vmdk sent as text":             {VMDK, vmdk, 75, []byte("\n\n"), broken, "as text"},
		"vmdk packed in no known way":   {VMDK, vmdk, 77, []byte{9}, refused, "way 9"},
		"vmdk of no bytes":              {VMDK, vmdk, 12, le64(0), broken, "no bytes"},
		"vmdk too large":                {VMDK, vmdk, 12, le64(1 << 63), broken, "too large"},
		"vmdk with a huge directory":    {VMDK, vmdk, 12, le64(1 << 50), broken, "directory would be too large"},
		"vmdk with odd grains":          {VMDK, vmdk, 20, le64(100), broken, "grains"},
		"vmdk with huge grains":         {VMDK, vmdk, 20, le64(1 << 20), broken, "grains"},
		"vmdk with tables of nothing":   {VMDK, vmdk, 44, le32(0), broken, "tables"},
		"vmdk with huge tables":         {VMDK, vmdk, 44, le32(1 << 30), broken, "tables"},
		"vmdk without a descriptor":     {VMDK, vmdk, 28, le64(0), refused, "several files"},
		"vmdk with a huge descriptor":   {VMDK, vmdk, 36, le64(1 << 30), broken, "descriptor"},
		"vmdk descriptor behind end":    {VMDK, vmdk, 28, le64(1 << 40), broken, "truncated"},
		"vmdk delta":                    {VMDK, vmdk, bytes.Index(vmdk, []byte("parentCID=")) + 10, []byte("12345678"), refused, "difference"},
		"vmdk of another kind":          {VMDK, vmdk, bytes.Index(vmdk, []byte("monolithicSparse")), []byte("twoGbMaxExtents\"\n"), refused, "twoGbMaxExtents"},
		"vmdk with a flat extent":       {VMDK, vmdk, bytes.Index(vmdk, []byte(" SPARSE")), []byte(" FLAT  "), refused, "another file"},
		"vmdk with no extent":           {VMDK, vmdk, bytes.Index(vmdk, []byte("\nRW ")), []byte("\n## "), refused, "several files"},
		"vmdk directory behind its end": {VMDK, vmdk, 56, le64(1 << 40), broken, "truncated"},
		"vmdk directory on its header":  {VMDK, vmdk, 56, le64(0), broken, "overlaps"},
		"vmdk table behind its end":     {VMDK, vmdk, directory, le32(1 << 30), broken, "truncated"},
		"vmdk table on its directory":   {VMDK, vmdk, directory, le32(uint32(directory / 512)), broken, "overlaps"},
		"vmdk grain on its table":       {VMDK, vmdk, table, le32(uint32(table / 512)), broken, "on a table"},
		"vmdk grain on its header":      {VMDK, vmdk, table, le32(1), broken, "overlaps"},
		"vmdk grain behind its end":     {VMDK, vmdk, table, le32(1 << 30), broken, "truncated"},
		"vmdk grain that is zero":       {VMDK, put(vmdk, 8, le32(7)), table, le32(1), "", ""},

		"packed vmdk without a footer":     {VMDK, packed[:len(packed)-512], 0, nil, broken, "footer"},
		"packed vmdk with another footer":  {VMDK, packed, footer + 12, le64(1), broken, "contradict"},
		"packed vmdk without directory":    {VMDK, packed, footer + 56, le64(1<<64 - 1), broken, "contradict"},
		"packed vmdk with another's grain": {VMDK, packed, firstGrain, le64(128), broken, "sector 128"},
		"packed vmdk with a huge grain":    {VMDK, packed, firstGrain + 8, le32(1 << 30), broken, "packed into"},
		"packed vmdk with an empty grain":  {VMDK, packed, firstGrain + 8, le32(0), broken, "unpacked"},
		"packed vmdk with another stream":  {VMDK, packed, firstGrain + 12, []byte{0}, broken, "zlib"},
		"packed vmdk with changed data":    {VMDK, packed, firstGrain + 100, []byte{1, 2, 3, 4}, broken, "unpacked"},
	} {
		t.Run(name, func(t *testing.T) {
			file := put(c.file, c.at, c.bytes)
			switch {
			case c.format == VHDX && !strings.Contains(name, "of no use") && !strings.Contains(name, "damaged"):
				mendVHDX(file)
			case c.format == VHD && !strings.Contains(name, "wrong"):
				mendVHD(file)
			}
			_, err := readDisk(c.format, file, 4*MaxCluster)
			if c.reason == "" && err != nil {
				t.Fatalf("it is refused: %v", err)
			}
			if c.reason != "" && (transfer.ReasonOf(err) != c.reason || !strings.Contains(err.Error(), c.message)) {
				t.Errorf("want %s with %q, got %v", c.reason, c.message, err)
			}
		})
	}
}

func put(file []byte, at int, p []byte) []byte {
	file = bytes.Clone(file)
	copy(file[at:], p)
	return file
}

// region returns where a region of a VHDX stands.
func region(file []byte, id guid) int {
	at := vhdxRegions1 + bytes.Index(file[vhdxRegions1:], id[:])
	return int(binary.LittleEndian.Uint64(file[at+16:]))
}

// TestImagesThatAreCutOff cuts good images anywhere: what is left is refused, or is not needed.
func TestImagesThatAreCutOff(t *testing.T) {
	disk := smallDisk()
	for name, c := range map[string]struct {
		format Format
		file   []byte
	}{
		"vdi": {VDI, made(t, disk, "vdi")}, "vhd": {VHD, made(t, disk, "vpc", "-o", "force_size=on")},
		"vhdx": {VHDX, made(t, disk, "vhdx", "-o", "block_size=1M,log_size=1M")},
		"vmdk": {VMDK, made(t, disk, "vmdk")}, "packed vmdk": {VMDK, diskimage.StreamVMDK(disk, nil)},
		"qcow2": {QCOW2, made(t, disk, "qcow2", "-o", "cluster_size=4k")},
	} {
		t.Run(name, func(t *testing.T) {
			want := make([]byte, len(disk))
			for length := 0; length <= len(c.file); length += max(1, len(c.file)/257) {
				got, err := readDisk(c.format, c.file[:length], 1<<30)
				if err != nil {
					wantReason(t, err)
					continue
				}
				copy(want, got)
				if !bytes.Equal(want, disk) {
					t.Fatalf("with %d of its %d bytes it is another disk", length, len(c.file))
				}
			}
			if got, err := readDisk(c.format, c.file, 1<<30); err != nil || !bytes.Equal(got[:len(disk)], disk) {
				t.Errorf("the whole of it is another disk (%v)", err)
			}
		})
	}
}

// TestLyingHeadersCostNoMemory opens files whose headers claim the largest disk there is.
func TestLyingHeadersCostNoMemory(t *testing.T) {
	disk := smallDisk()
	huge := map[Format][]byte{
		VDI:  put(put(made(t, disk, "vdi"), vdiDiskSize, le64(1<<51)), vdiBlocks, le32(1<<31)),
		VHD:  put(put(made(t, disk, "vpc"), 48, be64(1<<52)), vhdFooterSize+28, be32(1<<31)),
		VMDK: put(made(t, disk, "vmdk"), 12, le64(1<<37)),
	}
	mendVHD(huge[VHD])
	vhdx := made(t, disk, "vhdx", "-o", "block_size=1M,log_size=1M")
	items := region(vhdx, vhdxMetadata)
	at := items + bytes.Index(vhdx[items:items+vhdxTableSize], vhdxDiskSize[:])
	vhdx = put(vhdx, items+int(binary.LittleEndian.Uint32(vhdx[at+16:])), le64(vhdxMaxSize))
	table := vhdxRegions1 + bytes.Index(vhdx[vhdxRegions1:], vhdxBAT[:])
	huge[VHDX] = put(vhdx, table+24, le32(1<<31)) // and a table for it
	mendVHDX(huge[VHDX])
	for format, file := range huge {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reader := bytes.NewReader(file)
		layout, err := Parse(format, file[:HeadSize], reader, int64(len(file)))
		if err == nil {
			_, err = layout.Open(reader, int64(len(file)))
		}
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: a table outside of the file was accepted", format)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s: %d bytes were allocated for a file of %d", format, used, len(file))
		}
	}
}

// TestOrderedOutOfOrder refuses a stream whose grains go back.
func TestOrderedOutOfOrder(t *testing.T) {
	file := diskimage.StreamVMDK(bytes.Repeat([]byte{1}, 1<<20), func(grains []int) { grains[3], grains[4] = grains[4], grains[3] })
	from, err := NewOrdered(bufio.NewReader(bytes.NewReader(file)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(io.Discard, from); err == nil || transfer.ReasonOf(err) != transfer.WrongFormat || !strings.Contains(err.Error(), "no order") {
		t.Errorf("got %v", err)
	}
	if _, err := readDisk(VMDK, file, 1<<30); err != nil {
		t.Errorf("at any offset it is refused, too: %v", err)
	}
	cut := diskimage.StreamVMDK(bytes.Repeat([]byte{1}, 1<<20), nil)
	if from, err = NewOrdered(bufio.NewReader(bytes.NewReader(cut[:70<<10]))); err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(io.Discard, from); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("got %v", err)
	}
}

// TestImagesWithRandomChanges puts numbers of all kinds anywhere into the headers and tables of
// good images, from the same seed always the same ones: what comes of it is a disk, or an error that has a reason.
func TestImagesWithRandomChanges(t *testing.T) {
	disk := smallDisk()
	seed := corpus.From(t)
	vhdx := made(t, disk, "vhdx", "-o", "block_size=1M,log_size=1M")
	items, table := int64(region(vhdx, vhdxMetadata)), int64(region(vhdx, vhdxBAT))
	for name, c := range map[string]struct {
		format Format
		file   []byte
		mend   func([]byte)
		parts  []extent // where changes go
	}{
		"vdi":   {VDI, made(t, disk, "vdi"), nil, []extent{{"", 0x40, 0x200}, {"", 0x200, 0x10}}},
		"vhd":   {VHD, made(t, disk, "vpc"), mendVHD, []extent{{"", 0, 0x60}, {"", 0x200, 0x30}, {"", 0x600, 0x20}}},
		"vmdk":  {VMDK, made(t, disk, "vmdk"), nil, []extent{{"", 0, 0x50}, {"", 0x200, 0x200}, {"", 0x2a00, 0x1000}}},
		"vmdk2": {VMDK, diskimage.StreamVMDK(disk, nil), nil, []extent{{"", 0, 0x50}, {"", 0x10000, 0x20}, {"", 0x12000, 0x1800}}},
		"vhdx": {VHDX, vhdx, mendVHDX, []extent{
			{"", vhdxHeader1, 0x60}, {"", vhdxHeader2, 0x60}, {"", vhdxRegions1, 0x60}, {"", items, 0x100}, {"", items + vhdxTableSize, 0x40}, {"", table, 0x20},
		}},
		"qcow2": {QCOW2, made(t, disk, "qcow2", "-o", "cluster_size=4k"), nil, []extent{{"", 0, 0x70}, {"", 0x1000, 0x4000}}},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			for range corpus.Times(2000, 100_000) {
				file := bytes.Clone(c.file)
				for range 1 + random.IntN(3) {
					part := c.parts[random.IntN(len(c.parts))]
					at := min(part.offset+random.Int64N(part.length), int64(len(file)-8))
					number := random.Uint64() >> random.IntN(64) << random.IntN(24)
					word := be64(number)
					if random.IntN(2) == 0 {
						word = le64(number)
					}
					copy(file[at:], word[:1+random.IntN(8)])
				}
				if c.mend != nil && random.IntN(8) > 0 {
					c.mend(file)
				}
				if _, err := readDisk(c.format, file, MaxCluster); err != nil {
					wantReason(t, err)
				}
			}
		})
	}
}
