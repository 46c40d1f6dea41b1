package source

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/containers/image/v5/types"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// diskDir is the folder of an image that holds its disk.
const diskDir = "disk"

// Names of entries in a layer that stand for what is gone from the layers below.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// LayerFile is a file of an image, which is read while its layer is downloaded.
type LayerFile struct {
	// Path is where the file lies in the image, Size its size in bytes.
	Path string
	Size int64

	content io.Reader
	layer   *layer
}

// Read reads the file in order.
func (f *LayerFile) Read(p []byte) (int, error) {
	n, err := f.content.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
		err = f.layer.broken(err)
	}
	return n, err
}

// Verify reads the rest of the layer and compares its digest with the one that the image's manifest names.
func (f *LayerFile) Verify() error { return f.layer.finish() }

// Close ends the download.
func (f *LayerFile) Close() error { return f.layer.close() }

// Disk finds the image's disk: the first file below /disk in the highest layer that has one,
// as a file system of all the layers shows it. Layers under that are not downloaded.
func (r *Registry) Disk(ctx context.Context) (*LayerFile, error) {
	above := cover{room: maxCover, names: map[string]covers{}}
	for _, info := range slices.Backward(r.layers) {
		file, err := r.search(ctx, info, &above)
		if err != nil || file != nil {
			return file, err
		}
	}
	if above.link != "" {
		return nil, transfer.Errorf(transfer.WrongFormat, "/%s of %s is a link or a device; put the disk itself there", above.link, r.Name())
	}
	return nil, transfer.Errorf(transfer.WrongFormat, "%s holds no file below /disk; it is no disk for virtual machines: check the URL", r.Name())
}

// search looks for the disk in one layer. Without one it returns nil, and above has what the layer covers of those below.
func (r *Registry) search(ctx context.Context, info types.BlobInfo, above *cover) (*LayerFile, error) {
	l, err := r.openLayer(ctx, info)
	if err != nil {
		return nil, err
	}
	file, err := l.find(above)
	if file != nil {
		return file, nil
	}
	if err == nil || contradicts(err) {
		// A layer of which nothing can be made is perhaps not what it was when it was pushed.
		if wrong := l.finish(); wrong != nil {
			err = wrong
		}
	}
	return nil, errors.Join(err, l.close())
}

// contradicts reports whether err says that the content is wrong, and not that it could not be had.
func contradicts(err error) bool {
	reason := transfer.ReasonOf(err)
	return reason == transfer.InvalidImage || reason == transfer.WrongFormat
}

// layer is a layer that is being downloaded.
type layer struct {
	*blob
	content io.ReadCloser // unpacked
}

// openLayer begins to download a layer and takes its compression off, whatever its manifest calls it.
func (r *Registry) openLayer(ctx context.Context, info types.BlobInfo) (*layer, error) {
	b, err := r.openBlob(ctx, info)
	if err != nil {
		return nil, err
	}
	packed := bufio.NewReaderSize(b, image.HeadSize) // large reads come past it
	head, err := packed.Peek(image.HeadSize)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the layer's end
		return nil, errors.Join(err, b.close())
	}
	l := &layer{blob: b, content: io.NopCloser(packed)}
	if format := image.Packing(head); format != "" {
		if l.content, err = image.Decode(format, packed); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return l, nil
}

// find reads the layer up to the disk, or to its end.
func (l *layer) find(above *cover) (*LayerFile, error) {
	archive := tar.NewReader(l.content)
	own := cover{room: above.room, names: map[string]covers{}, link: above.link}
	for {
		header, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // the archive's end
			return nil, above.merge(own)
		}
		if err != nil {
			return nil, l.broken(err)
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if regular(header) && strings.HasPrefix(name, diskDir+"/") && !strings.HasPrefix(path.Base(name), whiteout) && !above.hides(name) {
			return &LayerFile{Path: name, Size: header.Size, content: archive, layer: l}, nil
		}
		own.note(name, header)
	}
}

func regular(header *tar.Header) bool {
	return header.Typeflag == tar.TypeReg || header.Typeflag == tar.TypeGNUSparse
}

// finish reads the rest of the layer, without unpacking it, and compares its digest.
func (l *layer) finish() error {
	l.release()
	return l.verify()
}

// release ends the unpacking, which may read ahead.
func (l *layer) release() {
	if l.content != nil {
		_ = l.content.Close() // what was unpacked is checked by the layer's digest
		l.content = nil
	}
}

func (l *layer) close() error {
	l.release()
	return l.blob.close()
}

// broken is the error of a layer that cannot be read as an archive, unless its download is what failed.
func (l *layer) broken(err error) error {
	if _, ok := errors.AsType[*transfer.Error](err); ok {
		return err
	}
	return transfer.Errorf(transfer.InvalidImage, "layer %s of %s is no whole tar archive: %w; push the image anew", l.info.Digest, l.image.Name(), err)
}

// covers is what an entry hides of the layers below.
type covers uint8

const (
	itself covers = 1 << iota // what has the same name
	inside                    // what is below it
)

// maxCover bounds the names that are kept of one image, in bytes.
const maxCover = 1 << 20

// cover is what layers hide of those below them, as far as it matters for the disk.
type cover struct {
	names map[string]covers
	room  int
	link  string // the first entry below /disk that is neither a file nor a folder
}

// note keeps what an entry hides.
func (c *cover) note(name string, header *tar.Header) {
	folder, base := path.Split(name)
	folder = strings.TrimSuffix(folder, "/")
	switch below := name == diskDir || strings.HasPrefix(name, diskDir+"/"); {
	case base == opaque:
		c.hide(folder, inside)
	case strings.HasPrefix(base, whiteout):
		c.hide(path.Join(folder, strings.TrimPrefix(base, whiteout)), itself|inside)
	case !below:
	case header.Typeflag == tar.TypeDir:
		c.hide(name, itself)
	default:
		c.hide(name, itself|inside)
		if c.link == "" && !regular(header) {
			c.link = name
		}
	}
}

// hide keeps names that concern /disk alone; the empty name is the root of the image.
func (c *cover) hide(name string, what covers) {
	if name != "" && name != diskDir && !strings.HasPrefix(name, diskDir+"/") {
		return
	}
	if _, known := c.names[name]; !known {
		c.room -= len(name) + 64 // about what an entry of the map takes
	}
	if c.room > 0 {
		c.names[name] |= what
	}
}

// hides reports whether a file of the layers below is not to be seen.
func (c *cover) hides(name string) bool {
	if c.names[name]&itself != 0 || c.names[""]&inside != 0 {
		return true
	}
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		if c.names[folder]&inside != 0 {
			return true
		}
	}
	return false
}

// merge adds what one more layer hides.
func (c *cover) merge(own cover) error {
	if own.room <= 0 {
		return transfer.Errorf(transfer.InvalidImage, "the image has too many entries below /disk; put the disk there and nothing else")
	}
	for name, what := range own.names {
		c.names[name] |= what
	}
	c.room, c.link = own.room, own.link
	return nil
}
