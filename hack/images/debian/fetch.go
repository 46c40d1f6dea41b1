package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/hack/images/cache"
)

// ErrGone says that a locked version is no longer on the mirror.
var ErrGone = errors.New("no longer on the mirror")

// Fetch downloads the lock's packages into the cache, checks their hashes, and returns each package's file by name.
func Fetch(ctx context.Context, dir cache.Dir, lock *Lock) (map[string]string, error) {
	if err := os.MkdirAll(dir.Path("debs"), 0o755); err != nil {
		return nil, fmt.Errorf("making the package cache: %w", err)
	}
	files := map[string]string{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, p := range lock.Packages {
		file := dir.Path("debs", p.SHA256+".deb")
		files[p.Name()] = file
		if st, err := os.Stat(file); err == nil && st.Size() == p.Size {
			continue
		}
		group.Go(func() error { return fetchOne(ctx, p, lock, file) })
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("downloading packages: %w", err)
	}
	return files, nil
}

// fetchOne tries the mirror, then Debian's archive of old versions at the lock's time.
func fetchOne(ctx context.Context, p Package, lock *Lock, file string) error {
	err := download(ctx, Mirror()+"/"+p.Archive+"/"+escapePath(p.Path), p, file)
	if err == nil || !errors.Is(err, ErrGone) {
		return err
	}
	snapshot := "https://snapshot.debian.org/archive/" + p.Archive + "/" + lock.Resolved.UTC().Format("20060102T150405Z") + "/" + escapePath(p.Path)
	if snapErr := download(ctx, snapshot, p, file); snapErr != nil {
		return fmt.Errorf("%w; nor in the snapshot archive (%w): take today's versions with --update-locks and commit the changed lock files", err, snapErr)
	}
	return nil
}

func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

func download(ctx context.Context, address string, p Package, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", address, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", address, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("package %s %s: %w (%s)", p.Name(), p.Version(), ErrGone, address)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for %s: %s", address, response.Status)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".download-")
	if err != nil {
		return fmt.Errorf("storing %s: %w", address, err)
	}
	defer os.Remove(temp.Name())
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(temp, hash), response.Body)
	if err = errors.Join(err, temp.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", address, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != p.SHA256 {
		return fmt.Errorf("package %s from %s has SHA-256 %s, the lock says %s", p.Name(), address, got, p.SHA256)
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return fmt.Errorf("storing %s: %w", address, err)
	}
	return nil
}
