package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// wanted are the sysctls that a node needs. Those with atLeast are only raised.
var wanted = []struct {
	key, value string
	atLeast    bool
}{
	{key: "net.ipv4.ip_forward", value: "1"},
	{key: "net.bridge.bridge-nf-call-iptables", value: "1"},
	{key: "fs.inotify.max_user_instances", value: "1024", atLeast: true},
	{key: "fs.inotify.max_user_watches", value: "524288", atLeast: true},
}

// touched are the sysctls that the kubelet and the bridge plugin set by themselves.
var touched = []string{
	"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
	"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
}

func sysctlFile(key string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
}

func readSysctl(key string) (string, error) {
	b, err := os.ReadFile(sysctlFile(key))
	return strings.TrimSpace(string(b)), err
}

// setSysctls records the values before and sets those wanted.
func (r *Record) setSysctls(ctx context.Context) error {
	if _, err := readSysctl("net.bridge.bridge-nf-call-iptables"); err != nil {
		if _, err := run(ctx, "modprobe", "br_netfilter"); err != nil {
			return fmt.Errorf("loading the kernel's bridge filter, without which services fail between pods of a node: %w", err)
		}
	}
	for _, key := range touched {
		r.rememberSysctl(key)
	}
	for _, w := range wanted {
		r.rememberSysctl(w.key)
	}
	if err := r.Save(); err != nil {
		return err
	}
	for _, w := range wanted {
		have, err := readSysctl(w.key)
		if err != nil {
			return fmt.Errorf("reading sysctl %s: %w", w.key, err)
		}
		if have == w.value || w.atLeast && atLeast(have, w.value) {
			continue
		}
		if err := os.WriteFile(sysctlFile(w.key), []byte(w.value), 0o644); err != nil {
			return fmt.Errorf("setting sysctl %s to %s: %w", w.key, w.value, err)
		}
	}
	return nil
}

func (r *Record) rememberSysctl(key string) {
	if _, known := r.Sysctls[key]; known {
		return
	}
	if value, err := readSysctl(key); err == nil {
		r.Sysctls[key] = value
	}
}

// restoreSysctls sets the recorded values again.
func (r *Record) restoreSysctls() error {
	var all *multierror.Error
	for key, value := range r.Sysctls {
		have, err := readSysctl(key)
		if err != nil || have == value {
			continue
		}
		if err := os.WriteFile(sysctlFile(key), []byte(value), 0o644); err != nil {
			all = multierror.Append(all, fmt.Errorf("setting sysctl %s back to %s: %w", key, value, err))
		}
	}
	return all.ErrorOrNil()
}

func atLeast(have, want string) bool {
	h, err1 := strconv.Atoi(have)
	w, err2 := strconv.Atoi(want)
	return err1 == nil && err2 == nil && h >= w
}
