package console

import (
	"bytes"
	"context"
	"io"
)

// escape is Ctrl+], which leaves the console.
const escape = 0x1d

// read reads what the user types from in, which may be waited for when the program ends, and calls
// leave when the user leaves: by the escape, or by the end of the input.
func read(ctx context.Context, in io.Reader, leave func()) <-chan []byte {
	typed := make(chan []byte)
	go func() {
		defer leave()
		buffer := make([]byte, 1024)
		for {
			n, err := in.Read(buffer)
			chunk, _, escaped := bytes.Cut(buffer[:n], []byte{escape})
			if len(chunk) > 0 {
				select {
				case typed <- bytes.Clone(chunk):
				case <-ctx.Done():
					return
				}
			}
			if escaped || err != nil {
				return
			}
		}
	}()
	return typed
}

// send writes what is typed to w until stop is closed or w takes no more.
func send(w io.Writer, typed <-chan []byte, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case chunk := <-typed:
			if _, err := w.Write(chunk); err != nil {
				return // who reads from the same stream learns why
			}
		}
	}
}
