package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
)

// Proxies are apt's settings of proxies: option names below Acquire, in small letters (http::proxy, http::proxy::HOST), with their values.
type Proxies map[string]string

// FindProxies asks apt for its proxies.
func FindProxies(ctx context.Context) (Proxies, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%f %v%n", "Acquire::http::Proxy", "Acquire::https::Proxy").Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("asking apt for its proxy: %w", err)
	}
	return parseProxies(string(out)), nil
}

func parseProxies(dump string) Proxies {
	proxies := Proxies{}
	for line := range strings.Lines(dump) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if option, ok := strings.CutPrefix(strings.ToLower(name), "acquire::"); ok && value != "" {
			proxies[option] = value
		}
	}
	return proxies
}

// For returns the proxy for a request, nil for none: the host's, else that of all, else what the environment says.
// As in apt, https has http's where it has none of its own.
func (p Proxies) For(request *http.Request) (*url.URL, error) {
	schemes := []string{"http"}
	if request.URL.Scheme == "https" {
		schemes = []string{"https", "http"}
	}
	for _, suffix := range []string{"::" + strings.ToLower(request.URL.Hostname()), ""} {
		for _, scheme := range schemes {
			value, ok := p[scheme+"::proxy"+suffix]
			switch {
			case !ok:
				continue
			case strings.EqualFold(value, "DIRECT"):
				return nil, nil
			}
			proxy, err := url.Parse(value)
			if err != nil {
				return nil, fmt.Errorf("reading apt's proxy Acquire::%s::Proxy%s: %w", scheme, suffix, err)
			}
			return proxy, nil
		}
	}
	return http.ProxyFromEnvironment(request)
}

// AptConfig writes the proxies as apt's configuration has them, for an apt with a configuration of its own.
func (p Proxies) AptConfig() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "Acquire::%s %q;\n", name, p[name])
	}
	return b.String()
}
