package importer_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// TestNoMoreIsAskedForThanTheDiskTakes counts what requests ask for, and the connections that they need: what
// is asked for and not read costs its connection, and time on the wire.
func TestNoMoreIsAskedForThanTheDiskTakes(t *testing.T) {
	const size, meta = 96 << 20, 3 << 20 // meta: header, tables, and the end of a raw file
	disk := make([]byte, size)
	random := rand.NewChaCha8([32]byte{2})
	data := 0
	for at := 0; at < size; at += 8 << 20 { // three of each eight MiB, as mixed data
		_, _ = random.Read(disk[at : at+3<<20])
		data += 3 << 20
	}
	dir := t.TempDir()
	raw := filepath.Join(dir, "disk.raw")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := qcow2(t, raw, filepath.Join(dir, "plain.qcow2"))
	for name, c := range map[string]struct {
		file  string
		bytes int64
	}{"raw": {raw, size}, "qcow2": {plain, int64(data)}} {
		t.Run(name, func(t *testing.T) {
			var asked, connections atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var from, to int64
				if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil {
					asked.Add(to + 1 - from)
				}
				http.ServeFile(w, r, c.file)
			}))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			server.Start()
			t.Cleanup(server.Close)
			doImport(t, server.URL+"/disk", nil).wantDisk(t, disk, size)
			if got := asked.Load(); got > c.bytes+meta {
				t.Errorf("%d MiB were asked for, the disk takes %d", got>>20, c.bytes>>20)
			}
			// One for each of four writers, and as many for what is looked at first.
			if got := connections.Load(); got > 8 {
				t.Errorf("%d connections were made", got)
			}
		})
	}
}
