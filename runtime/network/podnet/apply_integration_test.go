//go:build integration

package podnet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/launcher/dhcp"
	"github.com/slipway-vm/slipway/runtime/network"
	"github.com/slipway-vm/slipway/runtime/protocol"
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
	apply(t, pod, masqueraded)
	plugGuest(t, pod, guest, "")
	configure(t, guest, guestIP, "10.0.2.1")

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
		apply(t, pod, masqueraded)
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

func TestAGuestOnABridgeHasThePodsAddress(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	for name, mac := range map[string]string{"with the pod's hardware address": "", "with one of its own": "02:00:00:00:00:01"} {
		t.Run(name, func(t *testing.T) {
			world, pod, guest := newNamespace(t), newNamespace(t), newNamespace(t)
			connectPod(t, world, pod)
			before, err := Inspect(pod)
			must(t, err)
			for _, name := range []string{"all", "default"} { // as strict as some nodes are
				must(t, within(pod, func() error {
					return setSysctl(network.Sysctl{Path: "net/ipv4/conf/" + name + "/rp_filter", Value: "1"})
				}))
			}
			bridged := v1.Interface{Name: "default", MacAddress: mac}
			bridged.Bridge = &v1.InterfaceBridge{}
			card := apply(t, pod, bridged).Interfaces[0]
			if mac == "" {
				mac = before.MAC
			}
			if card.MAC != mac {
				t.Fatalf("the guest has the hardware address %s, want %s", card.MAC, mac)
			}
			plugGuest(t, pod, guest, mac)
			serveLeases(t, pod, card)
			lease := askForLease(t, guest, card, dhcpv4.MessageTypeDiscover, "")
			if ones, _ := lease.SubnetMask().Size(); lease.YourIPAddr.String() != podIP || ones != 24 || len(lease.Router()) != 1 || lease.Router()[0].String() != worldIP {
				t.Fatalf("the guest is offered %s", lease.Summary())
			}
			configure(t, guest, podIP, worldIP)

			serve(t, guest, podIP+":8080")
			serve(t, pod, "0.0.0.0:7070")
			serve(t, world, worldIP+":9090")
			if got, err := ask(world, podIP+":8080"); err != nil || got != worldIP {
				t.Errorf("the world asks the guest: got %q, %v; want it to be seen as %s", got, err, worldIP)
			}
			if got, err := ask(guest, worldIP+":9090"); err != nil || got != podIP {
				t.Errorf("the guest asks the world: got %q, %v; want it to be seen as %s", got, err, podIP)
			}
			if got, err := ask(world, podIP+":7070"); err == nil {
				t.Errorf("a process of the pod answers the world in the guest's stead, which it sees as %s", got)
			}
			renewed := askForLease(t, guest, card, dhcpv4.MessageTypeRequest, podIP)
			if renewed.MessageType() != dhcpv4.MessageTypeAck {
				t.Errorf("the renewal is answered with %s", renewed.Summary())
			}

			conn, reader := dial(t, world, podIP+":8080")
			defer conn.Close()
			apply(t, pod, bridged)
			if err := exchange(conn, reader); err != nil {
				t.Errorf("applying again broke the connection: %v", err)
			}
			after, err := Inspect(pod)
			must(t, err)
			if !reflect.DeepEqual(after, before) {
				t.Errorf("the pod's interface was %+v, is %+v", before, after)
			}
			wired := func() {
				if onPod, onTap := filters(t, pod, "eth0"), filters(t, pod, card.Tap); onPod != 1 || onTap != 2 {
					t.Errorf("%d filters on the pod's interface and %d on the tap, want 1 and 2", onPod, onTap)
				}
			}
			wired()
			must(t, within(pod, func() error {
				return netlink.LinkDel(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: card.Tap}})
			}))
			apply(t, pod, bridged) // with another tap
			wired()
		})
	}
}

// serveLeases answers the guest as its launcher does.
func serveLeases(t *testing.T, pod *os.File, card protocol.Interface) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var server *dhcp.Server
	must(t, within(pod, func() (err error) {
		server, err = dhcp.Listen(ctx, card, nil, slog.New(slog.DiscardHandler))
		return err
	}))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the DHCP server: %v", err)
		}
	})
}

// askForLease broadcasts a request from the guest's card, which has the address own or none, and returns the answer. It asks
// again until there is one, as guests do: a device that has just come up loses what is sent at once.
func askForLease(t *testing.T, guest *os.File, card protocol.Interface, kind dhcpv4.MessageType, own string) *dhcpv4.DHCPv4 {
	t.Helper()
	mac, err := net.ParseMAC(card.MAC)
	must(t, err)
	more := []dhcpv4.Modifier{dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(kind)}
	if own != "" {
		more = append(more, dhcpv4.WithClientIP(net.ParseIP(own)))
	}
	request, err := dhcpv4.New(more...)
	must(t, err)
	var socket net.PacketConn
	must(t, within(guest, func() (err error) {
		// Programs in guests read such answers from raw sockets, which look at no sender's address.
		for _, name := range []string{"all", "eth0"} {
			if err := setSysctl(network.Sysctl{Path: "net/ipv4/conf/" + name + "/rp_filter", Value: "0"}); err != nil {
				return err
			}
		}
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var optionErr error
			err := raw.Control(func(fd uintptr) {
				optionErr = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1), unix.BindToDevice(int(fd), "eth0"))
			})
			return errors.Join(err, optionErr)
		}}
		socket, err = config.ListenPacket(t.Context(), "udp4", "0.0.0.0:68")
		return err
	}))
	defer socket.Close()
	buffer := make([]byte, 1500)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		must(t, socket.SetDeadline(time.Now().Add(200*time.Millisecond)))
		_, err := socket.WriteTo(request.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67})
		must(t, err)
		n, _, err := socket.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		must(t, err)
		answer, err := dhcpv4.FromBytes(buffer[:n])
		must(t, err)
		if answer.TransactionID == request.TransactionID {
			return answer
		}
	}
	t.Fatalf("nobody answers the guest's %s", kind)
	return nil
}

// filters counts the filters of what comes in at a device of the pod.
func filters(t *testing.T, pod *os.File, device string) int {
	t.Helper()
	count := 0
	must(t, within(pod, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		found, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		count = len(found)
		return err
	}))
	return count
}

func TestAPodWithoutANetworkIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	if _, err := Inspect(newNamespace(t)); err == nil {
		t.Error("got no error for an empty namespace")
	}
}

var masqueraded = v1.Interface{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}

// apply plans and applies the network of a VMI with one interface.
func apply(t *testing.T, pod *os.File, nic v1.Interface) network.Plan {
	t.Helper()
	seen, err := Inspect(pod)
	must(t, err)
	if seen.Interface != "eth0" || seen.MTU != 1400 || len(seen.Addresses) != 1 || seen.Addresses[0].String() != podIP {
		t.Fatalf("Inspect saw %+v", seen)
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace = "testvm", "default"
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{nic}
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	plan, err := network.New(vmi, seen)
	must(t, err)
	must(t, Apply(pod, plan))
	return plan
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
// QEMU does, and a tap that is the guest's card, with the hardware address mac or any.
func plugGuest(t *testing.T, pod, guest *os.File, mac string) {
	t.Helper()
	inner := openTap(t, pod, "tap0")
	outer := openTap(t, guest, "eth0")
	must(t, within(guest, func() error {
		if mac == "" {
			return linkUp("eth0") // what reads from a device that is down fails
		}
		card, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		address, err := net.ParseMAC(mac)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetHardwareAddr(card, address), netlink.LinkSetUp(card))
	}))
	go func() { _, _ = io.CopyBuffer(onlyWriter{inner}, onlyReader{outer}, make([]byte, 1<<16)) }()
	go func() { _, _ = io.CopyBuffer(onlyWriter{outer}, onlyReader{inner}, make([]byte, 1<<16)) }()
}

// configure gives the guest's card an address and a gateway.
func configure(t *testing.T, guest *os.File, address, gateway string) {
	t.Helper()
	must(t, within(guest, func() error {
		if err := addAddress("eth0", address+"/24"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)})
	}))
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
