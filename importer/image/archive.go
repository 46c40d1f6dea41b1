package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// maxMembers bounds how many members of an archive are looked at.
const maxMembers = 10_000

// beside are the names of what an OVA holds that is no disk: descriptor, manifest, certificate,
// firmware's memory, texts, and media for a drive.
var beside = map[string]bool{
	".ovf": true, ".mf": true, ".cert": true, ".nvram": true, ".xml": true, ".msg": true, ".txt": true, ".md": true, ".json": true,
	".iso": true, ".sha256": true, ".asc": true, ".sig": true, ".vmx": true, ".vbox": true,
}

// besideBlobs are the names of what an archive of a container image holds that are no blobs.
var besideBlobs = map[string]bool{"oci-layout": true, "repositories": true}

// Archive finds the one disk in a tar archive, also one of a container image. Names in it are shown and never used as paths.
type Archive struct {
	reader  *tar.Reader
	members int
	name    string // of the disk, once it was found
	layout  bool   // whether it is one of a container image
	blob    *blob  // that the disk is in, where it is
}

// NewArchive returns the archive in r, which is read as far as it is asked for; an io.Seeker
// is not read where no disk is.
func NewArchive(r io.Reader) *Archive { return &Archive{reader: tar.NewReader(r)} }

// Disk returns the first disk's content and size in bytes. Plain reports whether it lies
// there in one piece, so that it begins where the archive's reader now stands.
func (a *Archive) Disk() (content io.Reader, size int64, plain bool, err error) {
	header, err := a.next()
	if err == io.EOF { //nolint:errorlint // only io.EOF itself is the archive's end
		return nil, 0, false, transfer.Errorf(transfer.WrongFormat, "the tar archive holds no disk; put one disk into it, or publish the disk itself")
	}
	if err != nil {
		return nil, 0, false, err
	}
	if blobName.MatchString(header.Name) {
		content, size, err = a.layoutDisk(header)
		return content, size, false, err
	}
	a.name = header.Name
	return &decoder{Reader: a.reader, packed: &packed{format: Tar}}, header.Size, !sparse(header), nil
}

// Finish refuses an archive that has a second disk, or whose disk is not what the archive says.
func (a *Archive) Finish() error {
	if a.layout {
		return a.finishLayout()
	}
	header, err := a.next()
	if err == io.EOF { //nolint:errorlint // only io.EOF itself is the archive's end
		return nil
	}
	if err != nil {
		return err
	}
	return transfer.Errorf(transfer.WrongFormat, "the tar archive holds more than one disk (%.100q and %.100q); publish each by itself", a.name, header.Name)
}

// next returns the next member that may be a disk, or io.EOF.
func (a *Archive) next() (*tar.Header, error) {
	for {
		header, err := a.reader.Next()
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the archive's end
			return nil, io.EOF
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, broken(Tar, err)
		}
		if a.members++; a.members > maxMembers {
			return nil, transfer.Errorf(transfer.WrongFormat, "the tar archive has more than %d members; put one disk into it, or publish the disk itself", maxMembers)
		}
		regular := header.Typeflag == tar.TypeReg || header.Typeflag == tar.TypeGNUSparse
		if regular && header.Size > 0 && !beside[strings.ToLower(path.Ext(header.Name))] && !besideBlobs[path.Clean(header.Name)] && !strings.HasPrefix(path.Base(header.Name), ".") {
			return header, nil
		}
	}
}

func sparse(header *tar.Header) bool {
	if header.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for name := range header.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// Member is where in an archive its disk lies.
type Member struct {
	Offset, Size int64
	// Plain is false when it is written with holes, or lies in a layer, and only Archive can read it. The offset is not known then.
	Plain bool
}

// FindDisk returns where in the archive of size bytes its one disk lies.
func FindDisk(file io.ReaderAt, size int64) (Member, error) {
	section := io.NewSectionReader(file, 0, size)
	archive := NewArchive(section)
	_, length, plain, err := archive.Disk()
	if err != nil {
		return Member{}, err
	}
	if archive.layout {
		return Member{Size: length}, nil // it lies in a layer, which Archive reads
	}
	offset, err := section.Seek(0, io.SeekCurrent)
	if err != nil {
		return Member{}, fmt.Errorf("finding the disk in a tar archive: %w", err)
	}
	return Member{Offset: offset, Size: length, Plain: plain}, archive.Finish()
}
