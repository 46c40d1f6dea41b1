package debian

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/hack/images/debian/mirror"
)

// Spec says which packages a lock is made for.
type Spec struct {
	// Suite is the Debian release.
	Suite string
	// Include names the wanted packages; their dependencies (not what they recommend) come with them.
	Include []string
	// Backports adds the suite's backports; a package comes from there only when Include says name/suite-backports.
	Backports bool
	// Essential adds the packages that every installed system has.
	Essential bool
	// Keep, when not empty, drops every package whose whole name none of these expressions matches.
	Keep []string
}

// Resolve asks the mirror for today's versions. Only apt's own verification of signatures is relied on; dir is a scratch folder.
func Resolve(ctx context.Context, dir string, spec Spec) (*Lock, error) {
	from, err := findSource(ctx)
	if err != nil {
		return nil, err
	}
	config, err := writeAptConfig(dir, spec, from)
	if err != nil {
		return nil, err
	}
	env := []string{"APT_CONFIG=" + config}
	if _, err := run(ctx, env, "apt-get", "update", "-q", "--error-on=any"); err != nil {
		return nil, fmt.Errorf("reading the package lists of %s: %w", spec.Suite, err)
	}
	args := []string{"install", "-qq", "--yes", "--no-install-recommends", "--print-uris"}
	if spec.Essential {
		args = append(args, "?essential")
	}
	out, err := run(ctx, env, "apt-get", append(args, spec.Include...)...)
	if err != nil {
		return nil, fmt.Errorf("resolving packages of %s: %w", spec.Suite, err)
	}
	wanted, err := parseURIs(out, spec.Keep)
	if err != nil {
		return nil, err
	}
	names := []string{"show"}
	for _, w := range wanted {
		names = append(names, w.name)
	}
	records, err := run(ctx, env, "apt-cache", names...)
	if err != nil {
		return nil, fmt.Errorf("reading package records of %s: %w", spec.Suite, err)
	}
	hashes := parseRecords(records)
	lock := &Lock{Suite: spec.Suite, Resolved: time.Now().UTC().Truncate(time.Second)}
	for _, w := range wanted {
		p, ok := hashes[w.path]
		if !ok {
			return nil, fmt.Errorf("package %s: its record has no SHA256", w.path)
		}
		p.Archive = w.archive
		lock.Packages = append(lock.Packages, p)
	}
	return lock, nil
}

func writeAptConfig(dir string, spec Spec, from source) (string, error) {
	for _, d := range []string{"lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return "", fmt.Errorf("making apt's folders: %w", err)
		}
	}
	suites := spec.Suite + " " + spec.Suite + "-updates"
	if spec.Backports {
		suites += " " + spec.Suite + "-backports"
	}
	files := map[string]string{
		"status": "",
		"list.sources": fmt.Sprintf(`Types: deb
URIs: %[1]s
Suites: %[2]s
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: %[3]s
Suites: %[4]s-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`, from.mirrors[mirror.Main][0], suites, from.mirrors[mirror.Security][0], spec.Suite),
		"apt.conf": fmt.Sprintf(`Dir::State "%[1]s";
Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Etc "%[1]s/etc";
Dir::Etc::sourcelist "%[1]s/list.sources";
Dir::Etc::sourceparts "/dev/null";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`, dir) + from.proxies.AptConfig(),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("writing apt's configuration: %w", err)
		}
	}
	return filepath.Join(dir, "apt.conf"), nil
}

type wantedPackage struct{ name, archive, path string }

// parseURIs reads the output of apt-get --print-uris: 'URI' file size hash.
func parseURIs(out string, keep []string) ([]wantedPackage, error) {
	var keepPattern *regexp.Regexp
	if len(keep) > 0 {
		p, err := regexp.Compile("^(" + strings.Join(keep, "|") + ")$")
		if err != nil {
			return nil, fmt.Errorf("reading the packages to keep: %w", err)
		}
		keepPattern = p
	}
	var wanted []wantedPackage
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "'") {
			continue
		}
		raw, _, _ := strings.Cut(line[1:], "'")
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("reading apt's answer %q: %w", raw, err)
		}
		_, pool, ok := strings.Cut(u.Path, "/pool/")
		if !ok {
			return nil, fmt.Errorf("apt's answer %q has no /pool/", raw)
		}
		w := wantedPackage{archive: archiveOf(pool), path: "pool/" + pool}
		w.name = Package{Path: w.path}.Name()
		if keepPattern == nil || keepPattern.MatchString(w.name) {
			wanted = append(wanted, w)
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("apt named no package to download")
	}
	return wanted, nil
}

// archiveOf names the archive by the path below its pool, for a mirror may have any address: security's begins with updates.
func archiveOf(pool string) string {
	if strings.HasPrefix(pool, "updates/") {
		return mirror.Security
	}
	return mirror.Main
}

// parseRecords reads package records (apt-cache show) into packages by their path.
func parseRecords(out string) map[string]Package {
	packages := map[string]Package{}
	for record := range strings.SplitSeq(out, "\n\n") {
		var p Package
		for line := range strings.Lines(record) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "Filename":
				p.Path = value
			case "SHA256":
				p.SHA256 = value
			case "Size":
				p.Size, _ = strconv.ParseInt(value, 10, 64)
			}
		}
		if p.Path != "" && p.Size > 0 && sha256Pattern.MatchString(p.SHA256) {
			packages[p.Path] = p
		}
	}
	return packages
}
