package hypervisor

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsLeftOnTheAgentsChannelIsReadAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	sent := make(chan error, 1)
	go func() {
		guest, err := listener.Accept()
		if err == nil {
			_, err = guest.Write([]byte(strings.Repeat("rest of an answer", 1<<16))) // more than the sockets hold
		}
		sent <- err
		<-t.Context().Done() // it stays open, as QEMU's does
	}()
	if err := readAway(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Errorf("the guest could not send all: %v", err)
	}
	if err := readAway(t.Context(), path+"-none"); err == nil || !strings.Contains(err.Error(), "opening the guest agent's channel") {
		t.Errorf("a channel that is not there: %v", err)
	}
}

func TestTheAgentsChannelIsRenewedSeldomAndOnlyWhileLibvirtdRuns(t *testing.T) {
	h := New(Options{})
	h.renew() // nobody is there to be ended
	if !h.renewed.IsZero() {
		t.Error("renewed while libvirtd is away")
	}
	h.broken = make(chan struct{}, 1) // somebody is, always
	h.renew()
	if len(h.broken) != 1 {
		t.Fatal("not renewed while libvirtd runs")
	}
	<-h.broken
	h.renew()
	if len(h.broken) != 0 {
		t.Error("renewed twice within its pause")
	}
}
