package exportserver

import (
	"archive/tar"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

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
func (s *Server) folder(w http.ResponseWriter, r *http.Request, at, rest string) {
	if rest == "" {
		below(w, r)
		return
	}
	root := rootOf(w, r, at)
	if root == nil {
		return
	}
	defer root.Close()
	name := path.Join(".", path.Clean("/"+rest))
	file, info, err := open(root, name)
	if err != nil {
		refuseFile(w, r, err)
		return
	}
	defer file.Close()
	// A page on the volume that a browser opens must do nothing in this server's name.
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch slash := strings.HasSuffix(rest, "/"); {
	case info.IsDir() && slash:
		giveList(w, r, root, name)
	case info.IsDir():
		below(w, r)
	case slash:
		refuseFile(w, r, errNoPlainFile)
	default:
		http.ServeContent(w, r, name, info.ModTime(), file)
	}
}

// below sends to the folder written with a slash: the links of its list are below it.
func below(w http.ResponseWriter, r *http.Request) {
	to := *r.URL
	to.Path += "/"
	to.RawPath = ""
	http.Redirect(w, r, to.RequestURI(), http.StatusMovedPermanently)
}

// giveList lists the files and folders in the folder called name.
func giveList(w http.ResponseWriter, r *http.Request, root *os.Root, name string) {
	entries, err := list(root, name)
	if err != nil {
		refuseFile(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	var page strings.Builder
	page.WriteString("<!doctype html>\n<pre>\n")
	for _, entry := range entries {
		if !entry.Type().IsRegular() && !entry.IsDir() {
			continue
		}
		shown := entry.Name()
		if entry.IsDir() {
			shown += "/"
		}
		link := url.URL{Path: shown}
		fmt.Fprintf(&page, "<a href=\"%s\">%s</a>\n", html.EscapeString(link.String()), html.EscapeString(shown))
	}
	page.WriteString("</pre>\n")
	_, _ = io.WriteString(w, page.String()) // who asks may be gone
}

// refuseFile says why a file of a volume is not given out. What may not be opened is not there.
func refuseFile(w http.ResponseWriter, r *http.Request, err error) {
	absent := []error{fs.ErrNotExist, errNoPlainFile, syscall.ENOTDIR, syscall.EINVAL, syscall.ENAMETOOLONG}
	switch {
	case slices.ContainsFunc(absent, func(one error) bool { return errors.Is(err, one) }):
		refuse(w, http.StatusNotFound, "the volume has no such file")
	case errors.Is(err, fs.ErrPermission):
		refuse(w, http.StatusForbidden, "the volume's owner of this file has not let others read it")
	default:
		log.FromContext(r.Context()).Error(err, "Reading a file failed")
		refuse(w, http.StatusInternalServerError, "the file cannot be read; see the log of the export's pod")
	}
}

// archive gives out all of a volume's files as a tar archive, packed by gzip. Whether they can be read is tried before, when that
// can still be said.
func (s *Server) archive(w http.ResponseWriter, r *http.Request, volume, at string) {
	root := rootOf(w, r, at)
	if root == nil {
		return
	}
	defer root.Close()
	if err := readable(root); err != nil {
		log.FromContext(r.Context()).Error(err, "Archiving a volume failed")
		refuse(w, http.StatusInternalServerError, fmt.Sprintf("the volume cannot be archived: %v; download its files one by one", err))
		return
	}
	s.pack(w, r, volume+".tar.gz", func(to io.Writer) error { return archiveTo(to, root) })
}

// readable says which file or folder below root cannot be read.
func readable(root *os.Root) error {
	return walk(root, ".", func(name string, kind fs.FileMode) error {
		if !kind.IsRegular() {
			return nil // folders are read on the way, nothing else is
		}
		file, _, err := open(root, name)
		if err != nil {
			return err
		}
		return file.Close() //nolint:wrapcheck // it names the file
	})
}

// archiveTo writes all that is below root, in the order of names. Symbolic links are written as
// such; pipes, sockets and devices are left out.
func archiveTo(w io.Writer, root *os.Root) error {
	archive := tar.NewWriter(w)
	err := walk(root, ".", func(name string, _ fs.FileMode) error {
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
