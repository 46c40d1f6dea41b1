package stepcache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Input is a file, folder or link that a step may use.
type Input struct {
	// Path is where the step sees it.
	Path string
	// Mode is its kind and permissions, as fs.FileMode has them. Owners and times do not count.
	Mode fs.FileMode
	// Link is what a symbolic link points to.
	Link string
	// Digest is the SHA-256 of a file's content, or of that of the file that a link leads to.
	Digest string
}

// Inputs lists all that is in the folders, in the order of their paths. A folder that is not
// there, as that of an optional workspace, is left out. So are names that begin with "..", by
// which Kubernetes keeps the versions of ConfigMaps and Secrets: their files are links to them.
func Inputs(folders ...string) ([]Input, error) {
	var all []Input
	for _, folder := range folders {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case strings.HasPrefix(entry.Name(), "..") && entry.IsDir():
				return fs.SkipDir
			case strings.HasPrefix(entry.Name(), ".."):
				return nil
			}
			input, err := newInput(path, entry)
			all = append(all, input)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading what is in %s: %w", folder, err)
		}
	}
	slices.SortFunc(all, func(a, b Input) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

func newInput(path string, entry fs.DirEntry) (Input, error) {
	info, err := entry.Info()
	if err != nil {
		return Input{}, fmt.Errorf("reading its mode: %w", err)
	}
	input := Input{Path: path, Mode: info.Mode() & (fs.ModeType | fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)}
	switch {
	case info.Mode().IsRegular():
		input.Digest, err = fileDigest(path)
	case info.Mode()&fs.ModeSymlink != 0:
		input.Mode = fs.ModeSymlink
		if input.Link, err = os.Readlink(path); err != nil {
			return Input{}, fmt.Errorf("reading the link: %w", err)
		}
		if strings.HasPrefix(input.Link, "..data/") {
			input.Link = "" // of a ConfigMap or Secret: only what it leads to counts
		}
		target, statErr := os.Stat(path)
		if statErr == nil && target.Mode().IsRegular() {
			input.Mode |= target.Mode().Perm()
			input.Digest, err = fileDigest(path)
		}
	}
	return input, err
}

func fileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("opening it: %w", err)
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("reading it: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
