// Package terminal has what verbs need to know of the terminal that the user sits at.
package terminal

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Is says whether in is a terminal.
func Is(in io.Reader) bool {
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// Raw lets every key of a terminal go through as it is, and returns what undoes that. Other input stays as it is.
func Raw(in io.Reader) (restore func(), err error) {
	if !Is(in) {
		return func() {}, nil
	}
	descriptor := int(in.(*os.File).Fd())
	state, err := term.MakeRaw(descriptor)
	if err != nil {
		return nil, fmt.Errorf("make raw terminal failed: %w", err)
	}
	return func() { _ = term.Restore(descriptor, state) }, nil
}

// Size is that of a terminal; both are 0 for what is none.
func Size(in io.Reader) (width, height int) {
	if !Is(in) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(in.(*os.File).Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}
