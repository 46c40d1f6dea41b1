package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// newCopyProgramCommand puts this program where another image finds it, which holds none of its own: the importer
// runs in the container image that holds the disk.
func newCopyProgramCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "copy-program FILE",
		Short: "Copies this program to a file",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := copyProgram(args[0]); err != nil {
				return fmt.Errorf("copying this program: %w", err)
			}
			return nil
		},
	}
}

// copyProgram makes the file anew, or leaves it as it was.
func copyProgram(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err //nolint:wrapcheck // the caller says what was being done
	}
	from, err := os.Open(self)
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	defer from.Close()
	part := path + ".part"
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755) //nolint:gosec // it is run by whatever user the other container has
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if _, err = io.Copy(to, from); err != nil {
		return errors.Join(err, to.Close())
	}
	if err := to.Close(); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	return os.Rename(part, path) //nolint:wrapcheck // likewise
}
