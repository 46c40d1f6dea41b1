//go:build integration

package podnet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/network"
)

// Addresses of the test's three namespaces: world and pod on a veth, pod and guest on the tap.
const (
	worldIP = "10.199.0.1"
	podIP   = "10.199.0.2"
	guestIP = "10.0.2.2"
)

func TestAGuestBehindThePlanIsReachedAndReachesOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	world, pod, guest := newNamespace(t), newNamespace(t), newNamespace(t)
	connectPod(t, world, pod)
	apply(t, pod)
	plugGuest(t, pod, guest)

	serve(t, guest, guestIP+":8080")
	serve(t, world, worldIP+":9090")

	for name, c := range map[string]struct {
		from *os.File
		to   string
		want string // the client's address as the server sees it
	}{
		"the world reaches the guest at the pod's address":        {world, podIP + ":8080", worldIP},
		"a process of the pod reaches the guest at localhost":     {pod, "127.0.0.1:8080", "10.0.2.1"},
		"a process of the pod reaches the guest at the pod's IP":  {pod, podIP + ":8080", podIP},
		"the guest reaches the world with the pod's address":      {guest, worldIP + ":9090", podIP},
		"the guest reaches itself at the pod's address (hairpin)": {guest, podIP + ":8080", "10.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(c.from, c.to)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want the server to see %s", got, err, c.want)
			}
		})
	}
	t.Run("applying again disturbs no connection and no device", func(t *testing.T) {
		conn, reader := dial(t, world, podIP+":8080")
		defer conn.Close()
		apply(t, pod)
		if err := exchange(conn, reader); err != nil {
			t.Errorf("the connection broke: %v", err)
		}
		if got, err := ask(world, podIP+":8080"); err != nil || got != worldIP {
			t.Errorf("a new connection: got %q, %v", got, err)
		}
	})
	t.Run("a guest with a foreign source address gets nowhere", func(t *testing.T) {
		must(t, within(guest, func() error { return addAddress("eth0", "10.0.2.66/24") }))
		if got, err := askFrom(guest, "10.0.2.66", worldIP+":9090", 2*time.Second); err == nil {
			t.Errorf("it reached the world as %s", got)
		}
	})
}

func TestAPodWithoutANetworkIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	if _, err := Inspect(newNamespace(t)); err == nil {
		t.Error("got no error for an empty namespace")
	}
}

// apply plans and applies the network of a VMI with one masquerade interface.
func apply(t *testing.T, pod *os.File) {
	t.Helper()
	seen, err := Inspect(pod)
	must(t, err)
	if seen.Interface != "eth0" || seen.MTU != 1400 || len(seen.Addresses) != 1 || seen.Addresses[0].String() != podIP {
		t.Fatalf("Inspect saw %+v", seen)
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace = "testvm", "default"
	nic := v1.Interface{Name: "default"}
	nic.Masquerade = &v1.InterfaceMasquerade{}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{nic}
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	plan, err := network.New(vmi, seen)
	must(t, err)
	must(t, Apply(pod, plan))
}

func newNamespace(t *testing.T) *os.File {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	must(t, err)
	defer own.Close()
	fresh, err := netns.New()
	must(t, err)
	must(t, netns.Set(own))
	file := os.NewFile(uintptr(fresh), "netns")
	t.Cleanup(func() { _ = file.Close() })
	must(t, within(file, func() error { return linkUp("lo") }))
	return file
}

func connectPod(t *testing.T, world, pod *os.File) {
	t.Helper()
	must(t, within(world, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0", MTU: 1400}, PeerName: "eth0"}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		peer, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetNsFd(peer, int(pod.Fd())); err != nil {
			return err
		}
		return addAddress("veth0", worldIP+"/24")
	}))
	must(t, within(pod, func() error {
		if err := addAddress("eth0", podIP+"/24"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(worldIP)})
	}))
}

// plugGuest is the virtual machine: it copies frames between the pod's tap, opened as
// QEMU does, and a tap that is the guest's card.
func plugGuest(t *testing.T, pod, guest *os.File) {
	t.Helper()
	inner := openTap(t, pod, "tap0")
	outer := openTap(t, guest, "eth0")
	must(t, within(guest, func() error {
		if err := addAddress("eth0", guestIP+"/24"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.0.2.1")})
	}))
	go func() { _, _ = io.CopyBuffer(onlyWriter{inner}, onlyReader{outer}, make([]byte, 1<<16)) }()
	go func() { _, _ = io.CopyBuffer(onlyWriter{outer}, onlyReader{inner}, make([]byte, 1<<16)) }()
}

type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }

func openTap(t *testing.T, ns *os.File, name string) *os.File {
	t.Helper()
	var file *os.File
	must(t, within(ns, func() error {
		fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return fmt.Errorf("attaching to %s: %w", name, err)
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	}))
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// serve answers each connection in ns with the client's address, then echoes.
func serve(t *testing.T, ns *os.File, address string) {
	t.Helper()
	var listener net.Listener
	must(t, within(ns, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
				_, _ = fmt.Fprintln(conn, host)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// patience is how long an answer may take: on a busy machine a thread may have no processor for half a minute.
const patience = 2 * time.Minute

func ask(ns *os.File, address string) (string, error) { return askFrom(ns, "", address, patience) }

// askFrom connects from ns with the source address source and returns the server's line.
func askFrom(ns *os.File, source, address string, bound time.Duration) (string, error) {
	var conn net.Conn
	err := within(ns, func() (err error) {
		dialer := net.Dialer{Timeout: bound}
		if source != "" {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		}
		conn, err = dialer.Dial("tcp", address)
		return err
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(bound)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	return line[:len(line)-1], nil
}

func dial(t *testing.T, ns *os.File, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	var conn net.Conn
	must(t, within(ns, func() (err error) {
		conn, err = net.DialTimeout("tcp", address, patience)
		return err
	}))
	must(t, conn.SetDeadline(time.Now().Add(2*patience)))
	reader := bufio.NewReader(conn)
	_, err := reader.ReadString('\n')
	must(t, err)
	return conn, reader
}

func exchange(conn net.Conn, reader *bufio.Reader) error {
	if _, err := fmt.Fprintln(conn, "still there?"); err != nil {
		return err
	}
	_, err := reader.ReadString('\n')
	return err
}

func addAddress(link, address string) error {
	found, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(found, parsed); err != nil {
		return err
	}
	return netlink.LinkSetUp(found)
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
