package exportserver

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// lostAndFound is the folder that a file system makes for itself, for root alone.
const lostAndFound = "lost+found"

// rootOf opens the folder of a volume, or says that it is not possible.
func rootOf(w http.ResponseWriter, r *http.Request, path string) *os.Root {
	root, err := os.OpenRoot(path)
	if err != nil {
		log.FromContext(r.Context()).Error(err, "Opening a volume failed")
		refuse(w, http.StatusInternalServerError, "the volume cannot be read; see the log of the export's pod")
		return nil
	}
	return root
}

// folder gives out one file of a volume, whole or in ranges, or the list of a folder. rest is its path.
func (s *Server) folder(w http.ResponseWriter, r *http.Request, path, rest string) {
	if rest == "" { // the links of a list are below the folder
		to := *r.URL
		to.Path += "/"
		http.Redirect(w, r, to.RequestURI(), http.StatusMovedPermanently)
		return
	}
	root := rootOf(w, r, path)
	if root == nil {
		return
	}
	defer root.Close()
	// A page on the volume that a browser opens must do nothing in this server's name.
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	below := r.Clone(r.Context())
	below.URL.Path, below.URL.RawPath = rest, ""
	http.FileServerFS(tree{root}).ServeHTTP(w, below)
}

// archive gives out all of a volume's files as a tar archive, packed by gzip.
func (s *Server) archive(w http.ResponseWriter, r *http.Request, volume, path string) {
	root := rootOf(w, r, path)
	if root == nil {
		return
	}
	defer root.Close()
	s.pack(w, r, volume+".tar.gz", func(to io.Writer) error { return archiveTo(to, root) })
}

// archiveTo writes all that is below root, in the order of names. Symbolic links are written as
// such; pipes, sockets and devices are left out.
func archiveTo(w io.Writer, root *os.Root) error {
	archive := tar.NewWriter(w)
	all := root.FS()
	err := fs.WalkDir(all, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case name == lostAndFound:
			return skip(entry)
		case err != nil:
			return fmt.Errorf("reading the volume: %w", err)
		case name == ".":
			return nil
		}
		if err := add(archive, root, name); err != nil {
			return fmt.Errorf("archiving %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("archiving the volume: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}

func skip(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// add writes one file, folder or link to archive.
func add(archive *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return fmt.Errorf("looking at it: %w", err)
	}
	var target string
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = root.Readlink(name); err != nil {
			return fmt.Errorf("reading the link: %w", err)
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("describing it: %w", err)
	}
	header.Name, header.Uname, header.Gname = name, "", ""
	if info.IsDir() {
		header.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return written(archive.WriteHeader(header))
	}
	file, opened, err := open(root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	if !os.SameFile(info, opened) {
		return errors.New("it was exchanged meanwhile")
	}
	if err := written(archive.WriteHeader(header)); err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, header.Size) // a file that grows is cut, one that shrinks breaks off
	return written(err)
}

func written(err error) error {
	if err != nil {
		return fmt.Errorf("writing it: %w", err)
	}
	return nil
}
