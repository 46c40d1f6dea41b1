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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/debian/mirror"
)

// ErrGone says that a locked version is no longer on the mirror.
var ErrGone = errors.New("no longer on the mirror")

// source is where this machine gets packages from.
type source struct {
	mirrors mirror.Mirrors
	proxies mirror.Proxies
}

func findSource(ctx context.Context) (source, error) {
	mirrors, err := mirror.Find()
	if err != nil {
		return source{}, err
	}
	proxies, err := mirror.FindProxies(ctx)
	if err != nil {
		return source{}, err
	}
	return source{mirrors, proxies}, nil
}

// Fetch downloads the lock's packages into the cache, checks their hashes, and returns each package's file by name.
func Fetch(ctx context.Context, dir cache.Dir, lock *Lock) (map[string]string, error) {
	if err := os.MkdirAll(dir.Path("debs"), 0o755); err != nil {
		return nil, fmt.Errorf("making the package cache: %w", err)
	}
	files := map[string]string{}
	var missing []Package
	for _, p := range lock.Packages {
		file := dir.Path("debs", p.SHA256+".deb")
		files[p.Name()] = file
		if st, err := os.Stat(file); err != nil || st.Size() != p.Size {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return files, nil
	}
	from, err := findSource(ctx)
	if err != nil {
		return nil, err
	}
	get := newFetcher(from)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, p := range missing {
		group.Go(func() error { return get.one(ctx, p, lock.Resolved, files[p.Name()]) })
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("downloading packages: %w", err)
	}
	return files, nil
}

// fetcher downloads packages.
type fetcher struct {
	mirrors mirror.Mirrors
	client  *http.Client
	// snapshots is the address of Debian's archive of old versions.
	snapshots string
}

func newFetcher(from source) fetcher {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = from.proxies.For
	return fetcher{mirrors: from.mirrors, client: &http.Client{Transport: transport}, snapshots: "https://snapshot.debian.org/archive"}
}

// one tries the mirrors in their order, then Debian's archive of old versions at the time when the versions were chosen.
func (f fetcher) one(ctx context.Context, p Package, resolved time.Time, file string) error {
	var errs []error
	gone := true
	for _, base := range f.mirrors[p.Archive] {
		err := f.download(ctx, base+"/"+escapePath(p.Path), p, file)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		gone = gone && errors.Is(err, ErrGone)
	}
	if len(errs) == 0 {
		return fmt.Errorf("package %s is of the archive %q, which no mirror is known of; make the lock anew with --update-locks", p.Name(), p.Archive)
	}
	err := errors.Join(errs...)
	if !gone {
		return err
	}
	snapshot := f.snapshots + "/" + p.Archive + "/" + resolved.UTC().Format("20060102T150405Z") + "/" + escapePath(p.Path)
	if snapErr := f.download(ctx, snapshot, p, file); snapErr != nil {
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

func (f fetcher) download(ctx context.Context, address string, p Package, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("asking for package %s: %w", p.Name(), err)
	}
	address = request.URL.Redacted()
	response, err := f.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for package %s: %w", p.Name(), err)
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
