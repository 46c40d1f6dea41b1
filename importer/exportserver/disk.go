package exportserver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/klauspost/pgzip"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
)

// packBlock is how much is packed at a time by each processor, in bytes.
const packBlock = 1 << 20

// disk is an open disk.
type disk struct {
	io.ReadSeekCloser
	changed time.Time // zero of a block device
}

// openDisk opens the block device at path, or disk.img in the folder there.
func openDisk(path string) (disk, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return disk{}, fmt.Errorf("looking for the volume: %w", err)
	case info.IsDir():
		return openDiskFile(path)
	case info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0:
		return disk{}, fmt.Errorf("the volume at %s is neither a folder nor a block device", path)
	}
	device, err := os.Open(path)
	if err != nil {
		return disk{}, fmt.Errorf("opening the block device: %w", err)
	}
	return disk{ReadSeekCloser: device}, nil
}

func openDiskFile(folder string) (disk, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return disk{}, fmt.Errorf("opening the volume: %w", err)
	}
	defer root.Close()
	file, info, err := open(root, names.DiskFile)
	if err != nil {
		return disk{}, fmt.Errorf("opening the disk: %w", err)
	}
	if !info.Mode().IsRegular() {
		_ = file.Close() // nothing was read
		return disk{}, fmt.Errorf("opening the disk: %w", errNoPlainFile)
	}
	return disk{ReadSeekCloser: file, changed: info.ModTime()}, nil
}

// diskOf opens the disk, or says why that is not possible.
func diskOf(w http.ResponseWriter, r *http.Request, path string) (disk, bool) {
	opened, err := openDisk(path)
	if err == nil {
		return opened, true
	}
	log.FromContext(r.Context()).Error(err, "Opening a volume failed")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoPlainFile) {
		refuse(w, http.StatusNotFound, "the volume has no file "+names.DiskFile)
		return disk{}, false
	}
	refuse(w, http.StatusInternalServerError, "the volume cannot be read; see the log of the export's pod")
	return disk{}, false
}

// raw gives out a disk as it is, whole or in ranges. Of a file that grows, nothing is given beyond its size at the moment.
func (s *Server) raw(w http.ResponseWriter, r *http.Request, volume, path string) {
	opened, ok := diskOf(w, r, path)
	if !ok {
		return
	}
	defer opened.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", strconv.Quote(s.tag+"-"+volume))
	http.ServeContent(w, r, names.DiskFile, opened.changed, opened)
}

// packed gives out a disk by gzip, made as it goes: its size is not known before, and ranges are not either.
func (s *Server) packed(w http.ResponseWriter, r *http.Request, volume, path string) {
	opened, ok := diskOf(w, r, path)
	if !ok {
		return
	}
	defer opened.Close()
	s.pack(w, r, volume+".img.gz", func(to io.Writer) error {
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{opened}, make([]byte, packBlock))
		if err != nil {
			return fmt.Errorf("copying the disk: %w", err)
		}
		return nil
	})
}

// pack answers with what write writes, packed by gzip. When that fails, the connection is cut.
func (s *Server) pack(w http.ResponseWriter, r *http.Request, name string, write func(io.Writer) error) {
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if r.Method == http.MethodHead {
		return
	}
	if err := packTo(w, write); err != nil {
		abort(r.Context(), w, err)
	}
}

func packTo(w io.Writer, write func(io.Writer) error) error {
	zip, err := pgzip.NewWriterLevel(w, pgzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("preparing gzip: %w", err)
	}
	if err := zip.SetConcurrency(packBlock, runtime.GOMAXPROCS(0)); err != nil {
		return fmt.Errorf("preparing gzip: %w", err)
	}
	err = write(zip)
	if closed := zip.Close(); err == nil && closed != nil { // in any case: its workers end with it
		err = fmt.Errorf("packing: %w", closed)
	}
	return err
}
