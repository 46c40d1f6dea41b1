// Package rfb speaks as much of the remote framebuffer protocol (RFC 6143), in which guests'
// screens are served, as it takes to move a guest's pointer.
package rfb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	version = "RFB 003.008\n"
	// securityNone is the kind of security without any: the socket is only given to those
	// who may see the screen.
	securityNone = 1
	// Messages of clients.
	updateRequest = 3
	pointerEvent  = 5
)

// MovePointer greets the server at the other end of screen, beside its other clients, moves
// the pointer a little about the middle, and returns once the guest has been told.
func MovePointer(screen io.ReadWriter) error {
	width, height, err := greet(screen)
	if err != nil {
		return fmt.Errorf("greeting the screen: %w", err)
	}
	var out []byte
	for shift := range uint16(2) {
		out = append(out, pointerEvent, 0) // no button
		out = binary.BigEndian.AppendUint16(out, width/2+shift)
		out = binary.BigEndian.AppendUint16(out, height/2+shift)
	}
	// The answer to a question that comes after says that all before was done.
	out = append(out, updateRequest, 0, 0, 0, 0, 0, 0, 1, 0, 1)
	if _, err := screen.Write(out); err != nil {
		return fmt.Errorf("moving the pointer: %w", err)
	}
	if _, err := io.ReadFull(screen, make([]byte, 4)); err != nil {
		return fmt.Errorf("waiting for the pointer to be moved: %w", err)
	}
	return nil
}

// greet returns the size of the screen.
func greet(screen io.ReadWriter) (width, height uint16, err error) {
	if _, err := io.ReadFull(screen, make([]byte, len(version))); err != nil {
		return 0, 0, fmt.Errorf("reading its version: %w", err)
	}
	if _, err := io.WriteString(screen, version); err != nil {
		return 0, 0, fmt.Errorf("telling the version: %w", err)
	}
	var count [1]byte
	if _, err := io.ReadFull(screen, count[:]); err != nil {
		return 0, 0, fmt.Errorf("reading its kinds of security: %w", err)
	}
	kinds := make([]byte, count[0])
	if _, err := io.ReadFull(screen, kinds); err != nil {
		return 0, 0, fmt.Errorf("reading its kinds of security: %w", err)
	}
	if _, err := screen.Write([]byte{securityNone}); err != nil {
		return 0, 0, fmt.Errorf("choosing the security: %w", err)
	}
	var result [4]byte
	if _, err := io.ReadFull(screen, result[:]); err != nil {
		return 0, 0, fmt.Errorf("choosing the security: %w", err)
	}
	if binary.BigEndian.Uint32(result[:]) != 0 {
		return 0, 0, errors.New("it refuses clients without a password")
	}
	if _, err := screen.Write([]byte{1}); err != nil { // shared with others
		return 0, 0, fmt.Errorf("joining: %w", err)
	}
	var about [24]byte // its size, its form of pixels, the length of its name
	if _, err := io.ReadFull(screen, about[:]); err != nil {
		return 0, 0, fmt.Errorf("reading its size: %w", err)
	}
	if _, err := io.CopyN(io.Discard, screen, int64(binary.BigEndian.Uint32(about[20:]))); err != nil {
		return 0, 0, fmt.Errorf("reading its name: %w", err)
	}
	return binary.BigEndian.Uint16(about[:]), binary.BigEndian.Uint16(about[2:]), nil
}
