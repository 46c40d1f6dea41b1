// Package build compiles the cluster's components from their Go modules and
// keeps the results by the content that made them.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Component is one Go module whose programs the cluster runs.
type Component struct {
	// Name is the module's folder and the first part of its cache folder.
	Name string
	// Dir is the folder of its go.mod.
	Dir string
	// Flags are given to go build.
	Flags []string
	// Packages are what is built; the programs land in the cache folder.
	Packages []string
	// Output is the program's name; empty where the packages name several programs.
	Output string
}

// pureGo are the tags that the main module is built with, so that what is compiled of the
// standard library and of Kubernetes' libraries is shared with it.
const pureGo = "netgo,osusergo"

// Components returns the cluster's components, whose modules lie under dir.
func Components(dir string) ([]Component, error) {
	kubernetes := filepath.Join(dir, "kubernetes")
	mod, err := os.ReadFile(filepath.Join(kubernetes, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("reading the Kubernetes module: %w", err)
	}
	stamp, err := versionFlags(string(mod))
	if err != nil {
		return nil, err
	}
	return []Component{
		{
			Name: "kubernetes", Dir: kubernetes, Packages: []string{"."}, Output: "kubernetes",
			Flags: []string{"-trimpath", "-tags", "providerless," + pureGo, "-ldflags", "-s -w " + stamp},
		},
		{
			Name: "coredns", Dir: filepath.Join(dir, "coredns"), Packages: []string{"."}, Output: "coredns",
			Flags: []string{"-trimpath", "-tags", pureGo, "-ldflags", "-s -w"},
		},
		{
			Name: "pause", Dir: filepath.Join(dir, "pause"), Packages: []string{"."}, Output: "pause",
			Flags: []string{"-trimpath", "-tags", pureGo, "-ldflags", "-s -w"},
		},
		{
			Name: "tekton", Dir: filepath.Join(dir, "tekton"), Packages: []string{"tool"},
			Flags: []string{"-trimpath", "-tags", pureGo, "-ldflags", "-s -w"},
		},
	}, nil
}

// MetricsServer returns the component that only autoscaling needs, whose module lies under dir.
// Its libraries are of Kubernetes' versions and compiled with Kubernetes' flags.
func MetricsServer(dir string) Component {
	return Component{
		Name: "metricsserver", Dir: filepath.Join(dir, "metricsserver"), Packages: []string{"tool"},
		Flags: []string{"-trimpath", "-tags", pureGo, "-ldflags", "-s -w"},
	}
}

// Required returns the version of a module that a go.mod asks for.
func Required(mod, module string) (string, error) {
	m := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(mod)
	if m == nil {
		return "", fmt.Errorf("go.mod does not require %s", module)
	}
	return m[1], nil
}

// versionFlags returns the linker flags that give the Kubernetes programs the
// version of their module: clients refuse a server of version v0.0.0.
func versionFlags(mod string) (string, error) {
	version, err := Required(mod, "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("k8s.io/kubernetes %s in go.mod: want vMAJOR.MINOR.PATCH", version)
	}
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+pkg+".gitVersion="+version,
			"-X "+pkg+".gitMajor="+parts[0],
			"-X "+pkg+".gitMinor="+parts[1],
			"-X "+pkg+".gitTreeState=clean",
			"-X "+pkg+".buildDate=1970-01-01T00:00:00Z")
	}
	return strings.Join(flags, " "), nil
}

// Key is a hash of all that decides what the component's programs are: its
// module files and sources, the compiler, the platform and the flags.
func (c Component) Key() (string, error) {
	files, err := filepath.Glob(filepath.Join(c.Dir, "*.go"))
	if err != nil {
		return "", fmt.Errorf("listing the sources of %s: %w", c.Name, err)
	}
	modules, err := filepath.Glob(filepath.Join(c.Dir, "go.*")) // a module without requirements has no go.sum
	if err != nil {
		return "", fmt.Errorf("listing the module files of %s: %w", c.Name, err)
	}
	files = append(files, modules...)
	sort.Strings(files)
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s\n%q\n%q\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, c.Flags, c.Packages)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("hashing the sources of %s: %w", c.Name, err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(b), b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// Build returns the folder of the component's programs and compiles them first
// when the cache does not hold them. Several checkouts may call it at once.
func (c Component) Build(ctx context.Context, cache string, say func(string, ...any)) (string, error) {
	key, err := c.Key()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, c.Name+"-"+key)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	unlock, err := Lock(filepath.Join(cache, c.Name+".lock"), func() {
		say("waiting for another build of %s", c.Name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(dir) {
		return dir, nil
	}
	say("building %s (minutes when Go's build cache is empty)", c.Name)
	began := time.Now()
	tmp, err := os.MkdirTemp(cache, "."+c.Name+"-")
	if err != nil {
		return "", fmt.Errorf("making a build folder: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // renamed away when the build worked
	if err := c.compile(ctx, tmp); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", fmt.Errorf("opening the build folder: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", fmt.Errorf("keeping the build of %s: %w", c.Name, err)
	}
	say("built %s in %s", c.Name, time.Since(began).Round(time.Second))
	return dir, nil
}

// compile runs go build into a folder.
func (c Component) compile(ctx context.Context, dir string) error {
	output := dir + "/"
	if c.Output != "" {
		output = filepath.Join(dir, c.Output)
	}
	args := append([]string{"build"}, c.Flags...)
	args = append(args, "-o", output)
	cmd := exec.CommandContext(ctx, "go", append(args, c.Packages...)...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off")
	cmd.Env = append(cmd.Env, "GOGC=off", "GOMEMLIMIT=3GiB") // a compiler ends before its garbage is in anyone's way
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s in %s: %w\n%s", c.Name, c.Dir, err, tail(string(out), 30))
	}
	return nil
}

// ModuleDir returns the folder of a module's source, downloaded when needed.
func ModuleDir(ctx context.Context, dir, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", fmt.Errorf("finding the source of %s: %w\n%s", module, err, exit.Stderr)
		}
		return "", fmt.Errorf("finding the source of %s: %w", module, err)
	}
	found := strings.TrimSpace(string(out))
	if found == "" {
		return "", fmt.Errorf("the source of %s is not in the module cache; run `go mod download` in %s", module, dir)
	}
	return found, nil
}

// Lock takes a file lock; waiting is called once when another process holds it.
func Lock(path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock %s: %w", path, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		waiting()
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("taking the lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tail returns the last n lines.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
