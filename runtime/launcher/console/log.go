// Package console keeps what a guest writes to its first serial port: QEMU writes to
// a pipe, the launcher copies it to a file of bounded size and to its own standard
// output, so that `kubectl logs` shows the guest and no log fills the node's disk.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// fileLimit is where the file is renamed to its older name, so that at most twice
	// as much is kept.
	fileLimit = 4 << 20
	chunk     = 16 << 10
	// mirrorQueue bounds what waits for a slow reader of standard output, in chunks;
	// more than that is left out there, never in the file.
	mirrorQueue = 64
)

// Log copies a console's output.
type Log struct {
	pipe   *os.File
	path   string
	mirror io.Writer
	log    *slog.Logger

	file *os.File
	size int64

	tail tail
}

// Open makes the pipe that QEMU writes to, at pipePath, and the file at path; older
// output goes to path + ".old". mirror gets the output too.
func Open(pipePath, path string, mirror io.Writer, log *slog.Logger) (*Log, error) {
	if err := unix.Mkfifo(pipePath, 0o660); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the console's pipe %s: %w", pipePath, err)
	}
	// Open for both directions, the pipe neither waits for QEMU nor ends with it.
	pipe, err := os.OpenFile(pipePath, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the console's pipe: %w", err)
	}
	out := &Log{pipe: pipe, path: path, mirror: mirror, log: log}
	if err := out.reopen(); err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	return out, nil
}

// Copy copies until ctx is done.
func (l *Log) Copy(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = l.pipe.Close() })
	defer stop()
	queue := make(chan []byte, mirrorQueue)
	defer close(queue)
	go l.copyMirror(queue)
	buffer := make([]byte, chunk)
	dropped := 0
	for {
		n, err := l.pipe.Read(buffer)
		if err != nil {
			return
		}
		l.tail.add(buffer[:n])
		l.keep(buffer[:n])
		select {
		case queue <- append([]byte(nil), buffer[:n]...):
		default:
			if dropped++; dropped == 1 {
				l.log.Warn("Leaving console output out of the pod's log: its reader is slow; the file has all of it", "file", l.path)
			}
		}
	}
}

func (l *Log) copyMirror(queue <-chan []byte) {
	for data := range queue {
		if _, err := l.mirror.Write(data); err != nil {
			l.mirror = io.Discard // standard output is gone; the file stays
		}
	}
}

// keep appends to the file. A failure is told once for each file: the guest goes on.
func (l *Log) keep(data []byte) {
	if l.file == nil {
		return
	}
	n, err := l.file.Write(data)
	l.size += int64(n)
	if err == nil && l.size < fileLimit {
		return
	}
	if err == nil {
		err = os.Rename(l.path, l.path+".old")
	}
	err = errors.Join(err, l.file.Close(), l.reopen())
	if err != nil {
		l.log.Warn("Failed to keep console output", "file", l.path, "err", err)
	}
}

func (l *Log) reopen() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o660)
	if err != nil {
		l.file = nil
		return fmt.Errorf("opening the console's log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("opening the console's log: %w", err), file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}
