package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// needs maps a program or file to the Debian package that brings it. A program
// that is there already, from wherever, is used as it is.
var needs = map[string]string{
	"containerd":                "containerd",
	"containerd-shim-runc-v2":   "containerd",
	"ctr":                       "containerd",
	"runc":                      "runc",
	"nft":                       "nftables",
	"iptables":                  "iptables",
	"git":                       "git", // Tekton's git resolver runs it
	"conntrack":                 "conntrack",
	"ip":                        "iproute2",
	"mkfs.xfs":                  "xfsprogs",
	"modprobe":                  "kmod",
	"mount":                     "mount",
	"losetup":                   "mount",
	"/etc/ssl/certs":            "ca-certificates",
	"/usr/lib/cni,/opt/cni/bin": "containernetworking-plugins",
}

const policyFile = "/usr/sbin/policy-rc.d"

// missing returns the packages whose files are not there.
func missing() []string {
	var packages []string
	for need, pkg := range needs {
		if !present(need) {
			packages = append(packages, pkg)
		}
	}
	sort.Strings(packages)
	unique := packages[:0]
	for i, p := range packages {
		if i == 0 || p != packages[i-1] {
			unique = append(unique, p)
		}
	}
	return unique
}

// present tells whether a program is in PATH or one of the files exists.
func present(need string) bool {
	if !strings.HasPrefix(need, "/") {
		_, err := exec.LookPath(need)
		return err == nil
	}
	for file := range strings.SplitSeq(need, ",") {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}

// Install brings the missing Debian packages. Services of theirs are not
// started: the cluster runs its own beside whatever the machine runs.
func Install(ctx context.Context, say func(string, ...any)) error {
	packages := missing()
	if len(packages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("programs are missing and there is no apt-get: install what brings %s", strings.Join(packages, ", "))
	}
	say("installing Debian packages: %s", strings.Join(packages, " "))
	restore, err := forbidServices()
	if err != nil {
		return err
	}
	defer restore()
	args := append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)
	if haveLists() && aptGet(ctx, args...) == nil {
		return nil
	}
	if err := aptGet(ctx, "update", "-q"); err != nil {
		return fmt.Errorf("updating the package lists: %w; check the machine's apt sources", err)
	}
	if err := aptGet(ctx, args...); err != nil {
		return fmt.Errorf("installing %s: %w; install them by hand", strings.Join(packages, " "), err)
	}
	if still := missing(); len(still) > 0 {
		return fmt.Errorf("still missing after their installation: %s", strings.Join(still, " "))
	}
	return nil
}

// aptGet runs apt-get without questions.
func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running apt-get %s: %w: %s", strings.Join(args, " "), err, lastLines(string(out), 15))
	}
	return nil
}

func haveLists() bool {
	lists, err := filepath.Glob("/var/lib/apt/lists/*_Packages*")
	return err == nil && len(lists) > 0
}

// forbidServices keeps package scripts from starting services, unless the
// machine has a policy of its own.
func forbidServices() (restore func(), err error) {
	f, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keeping packages from starting services: %w", err)
	}
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("keeping packages from starting services: %w", err)
	}
	return func() { _ = os.Remove(policyFile) }, nil
}

// Unpack fetches a Debian package without installing it and unpacks it in a folder.
func Unpack(ctx context.Context, pkg, dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".deb-")
	if err != nil {
		return fmt.Errorf("fetching the package %s: %w", pkg, err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a temporary folder
	if !haveLists() {
		if err := aptGet(ctx, "update", "-q"); err != nil {
			return err
		}
	}
	download := func() error {
		cmd := exec.CommandContext(ctx, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", pkg)
		cmd.Dir = tmp
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("fetching the package %s: %w: %s", pkg, err, lastLines(string(out), 10))
		}
		return nil
	}
	if download() != nil {
		if err := aptGet(ctx, "update", "-q"); err != nil {
			return err
		}
		if err := download(); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("fetching the package %s: %d archives came", pkg, len(debs))
	}
	_, err = run(ctx, "dpkg-deb", "-x", debs[0], dir)
	return err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
