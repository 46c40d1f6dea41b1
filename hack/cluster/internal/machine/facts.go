package machine

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
)

// capSysResource is the number of CAP_SYS_RESOURCE.
const capSysResource = 24

// Detect finds out how the machine is made.
func Detect(ctx context.Context) config.Facts {
	return config.Facts{
		Systemd:     isDir("/run/systemd/system"),
		AppArmor:    appArmor(),
		SysResource: hasCapability(capSysResource),
		CNIBin:      cniBin(),
		MTU:         mtu(ctx),
		Resolvers:   resolvers(ctx),
	}
}

// CgroupV2 tells whether the machine has only the unified cgroup hierarchy.
func CgroupV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func appArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !strings.HasPrefix(string(b), "Y") {
		return false
	}
	_, err = exec.LookPath("apparmor_parser")
	return err == nil
}

// hasCapability tells whether this process has a capability.
func hasCapability(number int) bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && mask&(1<<number) != 0
		}
	}
	return false
}

func cniBin() string {
	if _, err := os.Stat("/usr/lib/cni/bridge"); err == nil {
		return "/usr/lib/cni"
	}
	return "/opt/cni/bin"
}

// mtu is that of the default route's device, 1500 when there is none.
func mtu(ctx context.Context) int {
	out, err := run(ctx, "ip", "-j", "route", "show", "default")
	if err != nil {
		return 1500
	}
	var routes []struct {
		Dev string `json:"dev"`
	}
	if json.Unmarshal([]byte(out), &routes) != nil || len(routes) == 0 {
		return 1500
	}
	device, err := net.InterfaceByName(routes[0].Dev)
	if err != nil {
		return 1500
	}
	return device.MTU
}

// resolvers returns the machine's name servers that answer. One on a loopback
// address is of no use in a pod; systemd-resolved lists those behind it.
func resolvers(ctx context.Context) []string {
	var found []string
	for _, file := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if found = answering(ctx, nameservers(string(text))); len(found) > 0 {
			return found
		}
	}
	return found
}

// nameservers returns the addresses in a resolv.conf that pods can use.
func nameservers(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(fields[1]); err == nil && ip.Is4() && !ip.IsLoopback() {
			found = append(found, fields[1])
		}
	}
	return found
}

// answering keeps the servers that answer a query for the root's name servers.
func answering(ctx context.Context, servers []string) []string {
	good := make([]bool, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			ask, cancel := context.WithTimeout(ctx, 800*time.Millisecond)
			defer cancel()
			resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(s, "53"))
			}}
			_, err := resolver.LookupNS(ask, ".")
			good[i] = err == nil
		})
	}
	all.Wait()
	var found []string
	for i, s := range servers {
		if good[i] {
			found = append(found, s)
		}
	}
	return found
}
