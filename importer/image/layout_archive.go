package image

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// blobName matches the name of a blob in an archive of an OCI image layout (OCI image specification, image-layout.md), such as skopeo's
// oci-archive and docker save make.
var blobName = regexp.MustCompile(`^(?:\./)?blobs/sha256/([0-9a-f]{64})$`)

// diskDir is the folder of a container image that holds its disk.
const diskDir = "disk"

// blob is a blob of a layout, read in order.
type blob struct {
	name    string
	want    string // its digest, as its name has it
	raw     io.Reader
	sum     hash.Hash
	content io.ReadCloser // of a layer, unpacked; nil for what is none
}

// layoutDisk finds the disk of a container image in a layout, of which header is the first blob: the first file below /disk of the one
// layer that has something there. Manifests may come after layers, which are read as they come; so what of several layers
// makes up the disk, or of which of several images, is not known, and refused.
func (a *Archive) layoutDisk(header *tar.Header) (content io.Reader, size int64, err error) {
	a.layout = true
	for {
		b, file, member, err := a.layer(header)
		switch {
		case err != nil:
			return nil, 0, err
		case file != nil:
			a.blob, a.name = b, member.Name
			return file, member.Size, nil
		}
		header, err = a.next()
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the archive's end
			return nil, 0, transfer.Errorf(transfer.WrongFormat, "the container image in the archive holds no file below /disk; put the disk there, or publish the disk itself")
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// finishLayout checks the layer that the disk came in, and that no other one has something below /disk.
func (a *Archive) finishLayout() error {
	if err := a.blob.finish(); err != nil {
		return err
	}
	for {
		header, err := a.next()
		if err == io.EOF { //nolint:errorlint // only io.EOF itself is the archive's end
			return nil
		}
		if err != nil {
			return err
		}
		b, file, _, err := a.layer(header)
		if err != nil {
			return err
		}
		if file != nil {
			b.release()
			return severalDisks()
		}
	}
}

func severalDisks() error {
	return transfer.Errorf(transfer.WrongFormat, "more than one layer in the archive has something below /disk; archive one image of one architecture, in which one layer brings the disk")
}

// layer looks for a disk in what header is of. Without one it returns no file, and has read it to its end.
func (a *Archive) layer(header *tar.Header) (*blob, io.Reader, *tar.Header, error) {
	match := blobName.FindStringSubmatch(header.Name)
	if match == nil {
		return nil, nil, nil, nil // what docker save writes beside
	}
	b := &blob{name: header.Name, want: match[1], sum: sha256.New()}
	b.raw = io.TeeReader(a.reader, b.sum)
	files, err := b.open()
	if err != nil {
		return nil, nil, nil, b.failed(err)
	}
	if files == nil {
		return nil, nil, nil, b.finish()
	}
	for members := 0; ; members++ {
		entry, err := files.Next()
		switch {
		case err == io.EOF: //nolint:errorlint // only io.EOF itself is the layer's end
			return nil, nil, nil, b.finish()
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return nil, nil, nil, b.failed(broken(Tar, err))
		case members >= maxMembers:
			return nil, nil, nil, b.failed(transfer.Errorf(transfer.WrongFormat, "a layer in the archive has more than %d members; put the disk into an image by itself", maxMembers))
		}
		switch isFile, err := below(entry); {
		case err != nil:
			return nil, nil, nil, b.failed(err)
		case isFile:
			return b, &decoder{Reader: files, packed: &packed{format: Tar}}, entry, nil
		}
	}
}

// below reports whether an entry of a layer is a file below /disk. What else concerns that folder, and changes what other layers have
// there, is refused.
func below(entry *tar.Header) (bool, error) {
	name := strings.TrimPrefix(path.Clean("/"+entry.Name), "/")
	folder, base := path.Split(name)
	switch {
	case folder == "" && (base == ".wh."+diskDir || base == ".wh..wh..opq"):
		return false, severalDisks()
	case name != diskDir && !strings.HasPrefix(name, diskDir+"/"), entry.Typeflag == tar.TypeDir:
		return false, nil
	case strings.HasPrefix(base, ".wh."):
		return false, severalDisks()
	case entry.Typeflag == tar.TypeReg, entry.Typeflag == tar.TypeGNUSparse:
		return name != diskDir, nil
	}
	return false, transfer.Errorf(transfer.WrongFormat, "/%s of the container image in the archive is a link or a device; put the disk itself there", name)
}

// open takes the compression off, and returns the layer's files; nil where the blob is no layer.
func (b *blob) open() (*tar.Reader, error) {
	stream := bufio.NewReaderSize(b.raw, 64<<10)
	head, err := peek(stream)
	if err != nil {
		return nil, err
	}
	var content io.Reader = stream
	if format := Packing(head); format != "" {
		if b.content, err = Decode(format, stream); err != nil {
			return nil, err
		}
		content = b.content
	}
	files := bufio.NewReaderSize(content, 64<<10)
	head, err = peek(files)
	if err != nil {
		return nil, err
	}
	if format, err := Detect(head); err != nil || format != Tar {
		return nil, nil // a manifest, a configuration, or what is of no use here
	}
	return tar.NewReader(files), nil
}

func peek(stream *bufio.Reader) ([]byte, error) {
	head, err := stream.Peek(HeadSize)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the stream's end
		return nil, broken(Tar, err)
	}
	return head, nil
}

// release ends the unpacking, which may read ahead.
func (b *blob) release() {
	if b.content != nil {
		_ = b.content.Close() // what was unpacked is checked by the blob's digest
		b.content = nil
	}
}

// finish reads the rest of the blob, without unpacking it, and compares its digest.
func (b *blob) finish() error {
	b.release()
	if _, err := io.Copy(io.Discard, b.raw); err != nil {
		return broken(Tar, err)
	}
	if sum := hex.EncodeToString(b.sum.Sum(nil)); sum != b.want {
		return transfer.Errorf(transfer.ChecksumMismatch, "%s in the archive has the digest %s; it is damaged: archive the image anew", b.name, sum)
	}
	return nil
}

// failed is err, unless the blob is not what its name says: then that is what is wrong with it.
func (b *blob) failed(err error) error {
	if reason := transfer.ReasonOf(err); reason != transfer.InvalidImage && reason != transfer.WrongFormat {
		b.release()
		return err
	}
	if wrong := b.finish(); wrong != nil {
		return wrong
	}
	return err
}
