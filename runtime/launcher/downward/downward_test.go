package downward

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// node is what a node with two processors tells, one more is switched off.
func node() fstest.MapFS {
	file := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }
	return fstest.MapFS{
		"proc/stat":                       file("cpu  1000 200 300 9999 1 2 3 0 0 0\ncpu0 500 100 150 5000 0\nintr 1 2\n"),
		"proc/meminfo":                    file("MemTotal: 8000 kB\nMemFree: 1000 kB\nBuffers: 200 kB\nCached: 800 kB\nSwapCached: 10 kB\nSwapTotal: 500 kB\nSwapFree: 400 kB\n"),
		"proc/vmstat":                     file("nr_free_pages 1\npswpin 3\npswpout 5\n"),
		"sys/devices/system/cpu/cpufreq":  {Mode: os.ModeDir},
		"sys/devices/system/cpu/cpu2/uev": file(""),
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": file("0\n"),
		"sys/devices/system/cpu/cpu1/topology/physical_package_id": file("1\n"),
	}
}

func facts() Facts {
	second, balloon := uint64(time.Second), uint64(128<<20)
	return Facts{
		Node: "a<b", Product: "QEMU 10.0.2", Host: node(), Now: time.Unix(1700000000, 0),
		Guest: protocol.Stats{
			VCPUs:  []protocol.VCPUStats{{ID: 0, Time: &second}, {ID: 1, Time: &second}, {ID: 2}},
			Memory: protocol.MemoryStats{Balloon: &balloon},
		},
	}
}

func TestDocument(t *testing.T) {
	document, err := Document(facts())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<metrics>\n  <metric type=\"string\" context=\"host\">\n    <name>HostName</name>\n    <value><![CDATA[a<b]]></value>\n  </metric>\n",
		`<name>HostSystemInfo</name>|<value><![CDATA[linux]]></value>`,
		`<name>VirtProductInfo</name>|<value><![CDATA[QEMU 10.0.2]]></value>`,
		`<metric type="real64" context="vm" unit="s">|<name>TotalCPUTime</name>|<value><![CDATA[2.000000]]></value>`,
		`<metric type="uint64" context="vm">|<name>ResourceProcessorLimit</name>|<value><![CDATA[3]]></value>`,
		`<metric type="uint64" context="vm" unit="KiB">|<name>PhysicalMemoryAllocatedToVirtualSystem</name>|<value><![CDATA[131072]]></value>`,
		`<name>ResourceMemoryLimit</name>|<value><![CDATA[131072]]></value>`,
		`<metric type="int64" context="host">|<name>NumberOfPhysicalCPUs</name>|<value><![CDATA[2]]></value>`,
		`<metric type="real64" context="host" unit="s">|<name>TotalCPUTime</name>|<value><![CDATA[15.000000]]></value>`,
		`<name>FreePhysicalMemory</name>|<value><![CDATA[1000]]></value>`,
		`<name>FreeVirtualMemory</name>|<value><![CDATA[1400]]></value>`,
		`<name>MemoryAllocatedToVirtualServers</name>|<value><![CDATA[6000]]></value>`,
		`<name>UsedVirtualMemory</name>|<value><![CDATA[6490]]></value>`,
		`<name>PagedInMemory</name>|<value><![CDATA[12]]></value>`,
		`<name>PagedOutMemory</name>|<value><![CDATA[20]]></value>`,
		`<metric type="int64" context="host" unit="s">|<name>Time</name>|<value><![CDATA[1700000000]]></value>`,
	} {
		if os.Getpagesize() != 4096 && strings.Contains(want, "Paged") {
			continue
		}
		if !strings.Contains(string(document), strings.ReplaceAll(want, "|", "\n    ")) {
			t.Errorf("there is no %s in\n%s", want, document)
		}
	}
	if strings.Contains(string(document), end) {
		t.Error("the document has what ends an answer")
	}
}

func TestWhatTheNodeDoesNotTellIsLeftOut(t *testing.T) {
	few := facts()
	few.Host = fstest.MapFS{"proc/meminfo": node()["proc/meminfo"], "proc/stat": {Data: []byte("cpu\n")}}
	document, err := Document(few)
	if err == nil || !strings.Contains(err.Error(), "/proc/vmstat") || !strings.Contains(err.Error(), "no line of all processors") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(string(document), "FreePhysicalMemory") || strings.Contains(string(document), "PagedInMemory") {
		t.Errorf("got %s", document)
	}
}

func TestThisMachineTellsOfItself(t *testing.T) {
	metrics, err := hostMetrics(os.DirFS("/"))
	if err != nil || len(metrics) != 8 {
		t.Errorf("got %v, %v", metrics, err)
	}
}

// recorded notes what is written to it, in order.
type recorded struct {
	*os.File
	busy []byte
}

func (r *recorded) WriteAt(data []byte, at int64) (int, error) {
	if at == 0 {
		r.busy = append(r.busy, data[7])
	} else {
		r.busy = append(r.busy, '-')
	}
	return r.File.WriteAt(data, at)
}

func TestDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	must(t, CreateDisk(path))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() != DiskSize {
		t.Errorf("the disk is %d bytes long, %v", info.Size(), err)
	}
	if got := readDisk(t, file); got != "<metrics></metrics>\n" {
		t.Errorf("a new disk has %q", got)
	}
	disk := &recorded{File: file}
	must(t, WriteDisk(disk, []byte("<metrics>ß</metrics>")))
	if got := readDisk(t, file); got != "<metrics>ß</metrics>\n" {
		t.Errorf("the disk has %q", got)
	}
	if string(disk.busy) != "\x01-\x00" {
		t.Errorf("it was marked as %q", disk.busy)
	}
	if err := WriteDisk(file, make([]byte, DiskSize)); err == nil {
		t.Error("what is larger than the disk is written")
	}
	if err := CreateDisk(path); err == nil {
		t.Error("a disk is made over what is there")
	}
}

// readDisk reads as vhostmd's own reader does.
func readDisk(t *testing.T, file *os.File) string {
	t.Helper()
	var head header
	must(t, binary.Read(io.NewSectionReader(file, 0, headerSize), binary.BigEndian, &head))
	if head.Signature != signature || head.Busy != 0 {
		t.Fatalf("the header is %+v", head)
	}
	body := make([]byte, head.Length)
	_, err := file.ReadAt(body, headerSize)
	must(t, err)
	sum := uint32(0)
	for _, b := range body {
		sum += uint32(b)
	}
	if sum != head.Sum {
		t.Errorf("the sum is %d, want %d", head.Sum, sum)
	}
	return string(body)
}

func TestPort(t *testing.T) {
	guest, port := net.Pipe()
	var failure error
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ended <- Serve(ctx, port, func(context.Context) ([]byte, error) { return []byte("<metrics>\n</metrics>"), failure })
	}()
	must(t, guest.SetDeadline(time.Now().Add(5*time.Minute)))
	answers := bufio.NewReader(guest)
	ask := func(sent, want string) {
		t.Helper()
		_, err := io.WriteString(guest, sent)
		must(t, err)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(answers, got); err != nil || string(got) != want {
			t.Fatalf("%q is answered with %q, %v; want %q", sent, got, err, want)
		}
	}
	began := time.Now()
	ask("GET /metrics/XML\n\n", "<metrics>\n</metrics>\n\n")
	ask("GET /metrics/XML\r\n\r\n", "<metrics>\n</metrics>\n\n")
	if took := time.Since(began); took < rest {
		t.Errorf("the second request was answered after %s", took)
	}
	ask("GET /metrics/JSON\n\n", refusal)
	ask("GET /metrics/XML\nHost: me\n\n", refusal)
	ask(strings.Repeat("x", maxLine), refusal)
	ask(strings.Repeat("x", 10)+"\n", refusal)
	failure = errors.New("libvirt is away")
	ask("GET /metrics/XML\n\n", unavailable)
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("it ended with %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
