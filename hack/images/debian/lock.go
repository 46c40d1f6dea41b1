// Package debian makes root file systems from Debian packages whose versions and hashes are locked in a file.
package debian

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/hack/images/cache"
)

// Package is one locked binary package.
type Package struct {
	// Archive is the archive's name below the mirror: debian or debian-security.
	Archive string
	// Path is the file's place in the archive, as in the Filename field of its index.
	Path string
	// Size is the file's length in bytes.
	Size int64
	// SHA256 is the hash of the file in hex.
	SHA256 string
}

// Name is the package's name.
func (p Package) Name() string {
	name, _, _ := strings.Cut(path.Base(p.Path), "_")
	return name
}

// Version is the package's version without its epoch.
func (p Package) Version() string {
	parts := strings.Split(path.Base(p.Path), "_")
	if len(parts) < 3 {
		return ""
	}
	v, err := url.PathUnescape(parts[1])
	if err != nil {
		return parts[1]
	}
	return v
}

// Lock is the list of all packages of one root file system.
type Lock struct {
	// Suite is the Debian release, e.g. trixie.
	Suite string
	// Resolved is when the versions were chosen: the time of all files made from this lock, and the place in Debian's snapshot archive.
	Resolved time.Time
	// Packages are sorted by name.
	Packages []Package
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ParseLock reads what Format wrote. Errors name the line.
func ParseLock(r io.Reader) (*Lock, error) {
	lock := &Lock{}
	scanner := bufio.NewScanner(r)
	for n := 1; scanner.Scan(); n++ {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := lock.parseLine(fields); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the lock: %w", err)
	}
	if lock.Suite == "" || lock.Resolved.IsZero() || len(lock.Packages) == 0 {
		return nil, fmt.Errorf("incomplete lock: it needs a suite, a resolved time and packages; make it anew with --update-locks")
	}
	return lock, nil
}

func (l *Lock) parseLine(fields []string) error {
	switch {
	case fields[0] == "suite" && len(fields) == 2:
		l.Suite = fields[1]
	case fields[0] == "resolved" && len(fields) == 2:
		t, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			return fmt.Errorf("resolved: %w", err)
		}
		l.Resolved = t
	case len(fields) == 4:
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || size <= 0 {
			return fmt.Errorf("size %q is not a positive number", fields[2])
		}
		if !sha256Pattern.MatchString(fields[3]) {
			return fmt.Errorf("%q is not a SHA-256 in hex", fields[3])
		}
		if path.Clean("/"+fields[1]) != "/"+fields[1] {
			return fmt.Errorf("%q is not a plain path", fields[1])
		}
		l.Packages = append(l.Packages, Package{Archive: fields[0], Path: fields[1], Size: size, SHA256: fields[3]})
	default:
		return fmt.Errorf("want %q, %q or %q", "suite NAME", "resolved TIME", "ARCHIVE PATH SIZE SHA256")
	}
	return nil
}

// Format writes the lock as text: one line per package, sorted.
func (l *Lock) Format() []byte {
	packages := append([]Package(nil), l.Packages...)
	sort.Slice(packages, func(i, j int) bool { return path.Base(packages[i].Path) < path.Base(packages[j].Path) })
	var b strings.Builder
	fmt.Fprintf(&b, "# Locked Debian packages: archive, path, size, SHA-256. Made anew by --update-locks.\nsuite %s\nresolved %s\n",
		l.Suite, l.Resolved.UTC().Format(time.RFC3339))
	for _, p := range packages {
		fmt.Fprintf(&b, "%s %s %d %s\n", p.Archive, p.Path, p.Size, p.SHA256)
	}
	return []byte(b.String())
}

// LoadLock reads the lock in file. It makes the file from the mirror's present versions when there is none, or when update is set.
func LoadLock(ctx context.Context, dir cache.Dir, file string, spec Spec, update bool) (*Lock, error) {
	text, err := os.ReadFile(file)
	if err == nil && !update {
		lock, err := ParseLock(strings.NewReader(string(text)))
		if err != nil {
			return nil, fmt.Errorf("lock file %s: %w", file, err)
		}
		return lock, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading a lock file: %w", err)
	}
	scratch, remove, err := dir.TempDir("apt")
	if err != nil {
		return nil, err
	}
	defer remove()
	fmt.Fprintf(os.Stderr, "choosing package versions for %s\n", file)
	lock, err := Resolve(ctx, scratch, spec)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, lock.Format(), 0o644); err != nil {
		return nil, fmt.Errorf("writing a lock file: %w", err)
	}
	return lock, nil
}
