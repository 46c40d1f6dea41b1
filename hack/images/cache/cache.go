// Package cache keeps slow build results under one folder per user, named by the content of their inputs,
// so that every checkout shares them and nothing is built twice.
package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the root of a cache, usually ~/.cache/slipway.
type Dir string

// Default returns the cache of the current user: $SLIPWAY_CACHE, else slipway in the user's cache folder.
func Default() (Dir, error) {
	if d := os.Getenv("SLIPWAY_CACHE"); d != "" {
		return Dir(d), nil
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder (set SLIPWAY_CACHE): %w", err)
	}
	return Dir(filepath.Join(d, "slipway")), nil
}

// Path joins elem to the cache's root.
func (d Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Lock takes the exclusive lock called name, waiting for other builds that hold it. The caller calls the result to release it.
func (d Dir) Lock(name string) (func(), error) {
	if err := os.MkdirAll(d.Path("locks"), 0o755); err != nil {
		return nil, fmt.Errorf("making the lock folder: %w", err)
	}
	f, err := os.OpenFile(d.Path("locks", name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening lock %s: %w", name, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintf(os.Stderr, "waiting for another build of %s\n", name)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
		}
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// TempDir makes an empty working folder beside the cached results (the same file system, so a result can be renamed into place).
// The caller calls the second result to remove it.
func (d Dir) TempDir(name string) (string, func(), error) {
	if err := os.MkdirAll(d.Path("work"), 0o755); err != nil {
		return "", nil, fmt.Errorf("making the work folder: %w", err)
	}
	dir, err := os.MkdirTemp(d.Path("work"), name+"-")
	if err != nil {
		return "", nil, fmt.Errorf("making a work folder for %s: %w", name, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("opening the work folder of %s: %w", name, err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// Prune removes all but the newest keep files in the folder of pattern that match it. Age is the time of last use (see Touch).
func (d Dir) Prune(pattern string, keep int) error {
	found, err := filepath.Glob(d.Path(pattern))
	if err != nil {
		return fmt.Errorf("listing %s: %w", pattern, err)
	}
	type entry struct {
		path string
		time time.Time
	}
	var entries []entry
	for _, p := range found {
		st, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", p, err)
		}
		entries = append(entries, entry{p, st.ModTime()})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].time.After(entries[j].time) })
	for i := keep; i < len(entries); i++ {
		if err := os.RemoveAll(entries[i].path); err != nil {
			return fmt.Errorf("removing %s: %w", entries[i].path, err)
		}
	}
	return nil
}

// Touch marks path as used now.
func Touch(path string) error {
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		return fmt.Errorf("marking %s as used: %w", path, err)
	}
	return nil
}

// Exists says whether path is there.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Key returns 64 hex characters that stand for the ordered parts; no two different lists have the same key.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// FileSHA256 returns the SHA-256 of a file's content in hex.
func FileSHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hashing %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
