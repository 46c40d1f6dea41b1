package importer_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/diskimage"
)

// asked is what a request asks for: the bytes from to end, where a range is asked for.
type asked struct {
	from, end int64
	ranged    bool
	number    int // of the request, from 1
}

// serveRanges answers requests for the tests' disk as answer does.
func serveRanges(t *testing.T, answer func(w http.ResponseWriter, r asked, disk []byte)) string {
	t.Helper()
	disk := newDisk()
	numbers := make(chan int, 1)
	numbers <- 1
	return handle(t, func(w http.ResponseWriter, r *http.Request) {
		number := <-numbers
		numbers <- number + 1
		a := asked{end: diskSize, number: number}
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &a.from, &a.end); err == nil {
			a.ranged, a.end = true, min(a.end+1, diskSize)
		}
		answer(w, a, disk)
	})
}

// sendPart answers with a part of the disk, and says of it what header is.
func sendPart(w http.ResponseWriter, header string, body []byte) {
	w.Header().Set("Content-Range", header)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(body)
}

// honest answers as it should.
func honest(w http.ResponseWriter, r asked, disk []byte) {
	if !r.ranged {
		_, _ = w.Write(disk)
		return
	}
	sendPart(w, fmt.Sprintf("bytes %d-%d/%d", r.from, r.end-1, len(disk)), disk[r.from:r.end])
}

// endless sends body and then zeros, as long as somebody takes them.
func endless(w io.Writer, body []byte) {
	zeros := make([]byte, 64<<10)
	_, err := w.Write(body)
	for err == nil {
		_, err = w.Write(zeros)
	}
}

// lie is an answer that is wrong, and what comes of it: the disk when reason is empty.
type lie struct {
	answer func(w http.ResponseWriter, r asked, disk []byte)
	reason transfer.Reason
	words  string
}

// always answers parts of the disk with the same Content-Range.
func always(header string) func(http.ResponseWriter, asked, []byte) {
	return func(w http.ResponseWriter, r asked, disk []byte) { sendPart(w, header, disk[r.from:r.end]) }
}

// later answers honestly at first.
func later(answer func(http.ResponseWriter, asked, []byte)) func(http.ResponseWriter, asked, []byte) {
	return func(w http.ResponseWriter, r asked, disk []byte) {
		if r.number < 3 {
			honest(w, r, disk)
			return
		}
		answer(w, r, disk)
	}
}

func lies() map[string]lie {
	span := func(from, end, total int64) string { return fmt.Sprintf("bytes %d-%d/%d", from, end-1, total) }
	return map[string]lie{
		"all up to the file's end": {func(w http.ResponseWriter, r asked, disk []byte) {
			sendPart(w, span(r.from, diskSize, diskSize), disk[r.from:])
		}, "", ""},
		"what has no end": {func(w http.ResponseWriter, r asked, disk []byte) {
			w.Header().Set("Content-Range", span(r.from, r.end, diskSize))
			w.WriteHeader(http.StatusPartialContent)
			endless(w, disk[r.from:r.end])
		}, "", ""},
		"what has no end and says so": {func(w http.ResponseWriter, r asked, disk []byte) {
			w.Header().Set("Content-Range", span(r.from, diskSize, diskSize))
			w.WriteHeader(http.StatusPartialContent)
			endless(w, disk[r.from:])
		}, "", ""},
		"less than was asked for": {func(w http.ResponseWriter, r asked, disk []byte) {
			end := min(r.end, r.from+300_000)
			sendPart(w, span(r.from, end, diskSize), disk[r.from:end])
		}, "", ""},
		"less than it says": {func(w http.ResponseWriter, r asked, disk []byte) {
			end := min(r.end, r.from+3_000_000)
			sendPart(w, span(r.from, r.end, diskSize), disk[r.from:end])
		}, "", ""},
		"no total": {func(w http.ResponseWriter, r asked, disk []byte) {
			if !r.ranged {
				honest(w, r, disk)
				return
			}
			sendPart(w, fmt.Sprintf("bytes %d-%d/*", r.from, r.end-1), disk[r.from:r.end])
		}, "", ""},
		"no total later": {later(func(w http.ResponseWriter, r asked, disk []byte) {
			sendPart(w, fmt.Sprintf("bytes %d-%d/*", r.from, r.end-1), disk[r.from:r.end])
		}), "", ""},
		"no total, and parts of the whole": {always("bytes 0-65535/*"), transfer.SourceFailed, "asked for the whole file"},
		"the whole as a part": {func(w http.ResponseWriter, _ asked, disk []byte) {
			sendPart(w, span(0, diskSize, diskSize), disk)
		}, transfer.SourceFailed, "and sends those at 0"},
		"another start": {func(w http.ResponseWriter, r asked, disk []byte) {
			sendPart(w, span(r.from+512, r.end+512, diskSize), disk[r.from:r.end])
		}, transfer.SourceFailed, "asked for bytes at 0 and sends those at 512"},
		"another start later": {later(func(w http.ResponseWriter, r asked, disk []byte) {
			sendPart(w, span(r.from+1, r.end, diskSize), disk[r.from+1:r.end])
		}), transfer.SourceFailed, "asked for bytes at"},
		"another total later": {later(func(w http.ResponseWriter, r asked, disk []byte) {
			sendPart(w, span(r.from, r.end, diskSize+512), disk[r.from:r.end])
		}), transfer.SourceChanged, fmt.Sprintf("it had %d bytes, now %d", diskSize, diskSize+512)},
		"another total each time": {func(w http.ResponseWriter, r asked, disk []byte) {
			sendPart(w, span(r.from, r.end, diskSize+int64(r.number)), disk[r.from:r.end])
		}, transfer.SourceChanged, "it had"},
		"no Content-Range":                  {always(""), transfer.SourceFailed, "cannot be read"},
		"no Content-Range later":            {later(always("")), transfer.SourceFailed, "cannot be read"},
		"a Content-Range of something else": {always("lines 0-65535/1000000"), transfer.SourceFailed, "lines 0-65535"},
		"a Content-Range without end":       {always("bytes 0/1000000"), transfer.SourceFailed, "cannot be read"},
		"a Content-Range below zero":        {always("bytes -1-65535/1000000"), transfer.SourceFailed, "cannot be read"},
		"a Content-Range that goes back":    {always("bytes 10-9/1000000"), transfer.SourceFailed, "cannot be read"},
		"a part behind the file's end":      {always("bytes 0-65535/65535"), transfer.SourceFailed, "cannot be read"},
		"a file that has no number's size":  {always("bytes 0-65535/18446744073709551616"), transfer.SourceFailed, "cannot be read"},
		"a Content-Range of words":          {always("bytes a-b/c"), transfer.SourceFailed, "cannot be read"},
	}
}

func TestServersThatLieAboutRanges(t *testing.T) {
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(newDisk()))
	for name, c := range lies() {
		for how, checksum := range map[string]string{"at any offset": "", "in order": sum} {
			t.Run(name+", read "+how, func(t *testing.T) {
				t.Parallel()
				got := doImport(t, serveRanges(t, c.answer), func(o *importer.Options) { o.Checksum = checksum })
				if c.reason == "" {
					got.wantDisk(t, newDisk(), diskSize)
					return
				}
				got.wantFailure(t, c.reason, c.words)
			})
		}
	}
}

// A file that has no end is as much as the volume takes, or as is behind a disk.
func TestAFileWithoutEnd(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	stream := diskimage.StreamVMDK(newDisk(), nil)
	archive := readFile(t, tarOf(t, raw))
	for name, c := range map[string]struct {
		head   []byte
		sum    bool
		reason transfer.Reason
		words  string
	}{
		"raw":                    {newDisk(), false, transfer.TooSmall, "larger than the volume"},
		"vmdk":                   {stream, false, "", ""},
		"vmdk with its checksum": {stream, true, transfer.InvalidImage, "behind the end of its disk"},
		"tar":                    {archive, false, "", ""},
		"tar of texts":           {endlessTar(t), false, transfer.InvalidImage, "the tar archive has more than"},
		"qcow2":                  {readFile(t, qcow2(t, raw, raw+".qcow2")), false, transfer.InvalidImage, "twice its disk's size"},
	} {
		t.Run(name, func(t *testing.T) {
			url := handle(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(c.head)
				_ = http.NewResponseController(w).Flush() // without a length
				endless(w, nil)
			})
			got := doImport(t, url, func(o *importer.Options) {
				o.Target.Size = 22 << 20
				if c.sum {
					o.Checksum = fmt.Sprintf("sha256:%x", sha256.Sum256(c.head))
				}
			})
			if c.reason == "" {
				got.wantDisk(t, newDisk(), 22<<20)
				return
			}
			got.wantFailure(t, c.reason, c.words)
		})
	}
}

// serveRaw answers each request on a connection with what answer writes, byte for byte, and ends
// the connection unless that returns true.
func serveRaw(t *testing.T, answer func(w io.Writer, r asked, disk []byte) bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	disk := newDisk()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for requests := bufio.NewReader(conn); ; {
					r, err := http.ReadRequest(requests)
					if err != nil {
						return
					}
					a := asked{end: diskSize}
					if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &a.from, &a.end); err == nil {
						a.ranged, a.end = true, min(a.end+1, diskSize)
					}
					if !answer(conn, a, disk) {
						return
					}
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String() + "/disk.raw"
}

func TestServersThatSendAnotherLengthThanTheySay(t *testing.T) {
	head := func(r asked, length int64) string {
		if !r.ranged {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length)
		}
		return fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n", length, r.from, r.end-1, diskSize)
	}
	const junk = "junk"
	for name, c := range map[string]struct {
		answer func(w io.Writer, r asked, disk []byte) bool
		reason transfer.Reason
	}{
		"more, by ranges": {func(w io.Writer, r asked, disk []byte) bool {
			_, _ = fmt.Fprintf(w, "%s%s%s", head(r, r.end-r.from), disk[r.from:r.end], junk)
			return true
		}, ""},
		"more, without ranges": {func(w io.Writer, r asked, disk []byte) bool {
			_, _ = fmt.Fprintf(w, "%s%s%s", head(asked{}, diskSize), disk, junk)
			return true
		}, ""},
		"less, by ranges": {func(w io.Writer, r asked, disk []byte) bool {
			_, _ = fmt.Fprintf(w, "%s%s", head(r, r.end-r.from), disk[r.from:min(r.end, r.from+2_000_000)])
			return false
		}, ""},
		"less, without ranges": {func(w io.Writer, r asked, disk []byte) bool {
			_, _ = fmt.Fprintf(w, "%s%s", head(asked{}, diskSize), disk[:diskSize-1])
			return false
		}, transfer.ConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := doImport(t, serveRaw(t, c.answer), nil)
			if c.reason == "" {
				got.wantDisk(t, newDisk(), diskSize)
				return
			}
			got.wantFailure(t, c.reason, fmt.Sprint(diskSize-1))
		})
	}
}
