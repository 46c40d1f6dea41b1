package disc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/debian/mirror"
)

// proxy is an HTTP proxy for a guest that installs Debian: whatever server of Debian's archive it asks for, it
// gets the files of this machine's mirror. Packages never change and are kept; indexes are fetched each time.
type proxy struct {
	mirrors []string
	cache   string
	client  *http.Client
}

// Mirror returns the proxy. It reaches the mirror as this machine's apt does.
func Mirror(ctx context.Context) (http.Handler, error) {
	found, err := mirror.Find()
	if err != nil {
		return nil, fmt.Errorf("finding this machine's Debian mirror: %w", err)
	}
	proxies, err := mirror.FindProxies(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := cache.Default()
	if err != nil {
		return nil, err
	}
	return &proxy{mirrors: found[mirror.Main], cache: dir.Path("installer", "pool"), client: &http.Client{Transport: &http.Transport{Proxy: proxies.For}}}, nil
}

// ServeHTTP answers for files of the archive debian.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/debian/")
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead || !filepath.IsLocal(path) {
		http.Error(w, "this proxy serves the archive /debian/ only", http.StatusForbidden)
		return
	}
	if !strings.HasPrefix(path, "pool/") {
		p.pass(w, r, path)
		return
	}
	kept := filepath.Join(p.cache, path)
	if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
		if err := p.keep(r, path, kept); err != nil {
			log.Print(err)
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	http.ServeFile(w, r, kept)
}

// pass hands on what a mirror answers.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request, path string) {
	answer, err := p.fetch(r, path)
	if err != nil {
		log.Print(err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	for _, name := range []string{"Content-Length", "Content-Type", "Last-Modified"} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, answer.Body) // a guest that went away asks again
	}
}

// keep fetches a file whole before anybody sees it.
func (p *proxy) keep(r *http.Request, path, to string) error {
	answer, err := p.fetch(r, path)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("fetching %s: the mirror says %s", path, answer.Status)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("keeping %s: %w", path, err)
	}
	part, err := os.CreateTemp(filepath.Dir(to), ".part-")
	if err != nil {
		return fmt.Errorf("keeping %s: %w", path, err)
	}
	defer func() { _ = os.Remove(part.Name()) }()
	if _, err := io.Copy(part, answer.Body); err != nil {
		return errors.Join(fmt.Errorf("fetching %s: %w", path, err), part.Close())
	}
	if err := part.Close(); err != nil {
		return fmt.Errorf("keeping %s: %w", path, err)
	}
	if err := os.Rename(part.Name(), to); err != nil {
		return fmt.Errorf("keeping %s: %w", path, err)
	}
	return nil
}

// fetch asks the mirrors in their order and returns the first answer.
func (p *proxy) fetch(r *http.Request, path string) (*http.Response, error) {
	var failed error
	for _, base := range p.mirrors {
		request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, base+"/"+path, nil)
		if err != nil {
			return nil, fmt.Errorf("asking for %s: %w", path, err)
		}
		answer, err := p.client.Do(request)
		if err == nil {
			return answer, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("fetching %s: %w", path, failed)
}
