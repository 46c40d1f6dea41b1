package console

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// blocked is a standard output that nobody reads.
type blocked struct{ release chan struct{} }

func (b blocked) Write(data []byte) (int, error) {
	<-b.release
	return len(data), nil
}

func run(t *testing.T, mirror io.Writer, output []byte, until func(kept int64) bool) (string, func()) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	log, err := Open(filepath.Join(dir, "pipe"), path, mirror, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { log.Copy(ctx) })
	pipe, err := os.OpenFile(filepath.Join(dir, "pipe"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Write(output); err != nil {
		t.Fatal(err)
	}
	for !until(total(t, path)) {
		if t.Context().Err() != nil {
			t.Fatal("the output did not arrive")
		}
	}
	return path, func() {
		cancel()
		done.Wait()
		_ = pipe.Close()
	}
}

func total(t *testing.T, path string) int64 {
	t.Helper()
	var sum int64
	for _, name := range []string{path, path + ".old"} {
		if info, err := os.Stat(name); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

func TestOutputIsKeptAndMirrored(t *testing.T) {
	var mirror bytes.Buffer
	output := []byte("login: ")
	path, stop := run(t, &mirror, output, func(kept int64) bool { return kept == 7 })
	stop()
	kept, err := os.ReadFile(path)
	if err != nil || string(kept) != string(output) {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func TestAReaderThatHangsDoesNotStopTheGuest(t *testing.T) {
	hang := blocked{release: make(chan struct{})}
	size := int64(3 << 20)
	path, stop := run(t, hang, []byte(strings.Repeat("x", int(size))), func(kept int64) bool { return kept == size })
	close(hang.release)
	stop()
	if got := total(t, path); got != size {
		t.Errorf("kept %d bytes, want %d", got, size)
	}
}

func TestTheFileIsBounded(t *testing.T) {
	output := []byte(strings.Repeat("x", 3*fileLimit))
	path, stop := run(t, io.Discard, output, func(int64) bool { return true })
	stop()
	if got := total(t, path); got > 2*fileLimit+2*chunk {
		t.Errorf("kept %d bytes, over twice %d", got, fileLimit)
	}
}
