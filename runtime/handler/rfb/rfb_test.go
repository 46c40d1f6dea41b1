package rfb_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/handler/rfb"
)

// serve plays a screen of 640×480: it says each part of says once it heard as much as the
// part of hears before, and returns what it heard.
func serve(t *testing.T, screen net.Conn, says []string, hears []int) <-chan string {
	t.Helper()
	heard := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		defer func() {
			_ = screen.Close()
			heard <- all.String()
		}()
		for i, text := range says {
			if _, err := io.CopyN(&all, screen, int64(hears[i])); err != nil {
				return
			}
			if _, err := io.WriteString(screen, text); err != nil {
				return
			}
		}
	}()
	return heard
}

const about = "\x02\x80\x01\xe0" + "0123456789abcdef" + "\x00\x00\x00\x04" + "tiny"

func TestThePointerIsMovedAboutTheMiddle(t *testing.T) {
	client, screen := net.Pipe()
	heard := serve(t, screen, []string{"RFB 003.008\n", "\x01\x01", "\x00\x00\x00\x00", about, "\x00\x00\x00\x01"}, []int{0, 12, 1, 1, 22})
	if err := rfb.MovePointer(client); err != nil {
		t.Fatal(err)
	}
	want := "RFB 003.008\n" + "\x01" + "\x01" + "\x05\x00\x01\x40\x00\xf0" + "\x05\x00\x01\x41\x00\xf1" + "\x03\x00\x00\x00\x00\x00\x00\x01\x00\x01"
	if got := <-heard; got != want {
		t.Errorf("the screen heard %q, want %q", got, want)
	}
}

func TestAScreenThatWantsAPasswordIsTold(t *testing.T) {
	client, screen := net.Pipe()
	heard := serve(t, screen, []string{"RFB 003.008\n", "\x01\x02", "\x00\x00\x00\x01"}, []int{0, 12, 1})
	if err := rfb.MovePointer(client); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("error %v", err)
	}
	<-heard
}

func TestAScreenThatEndsIsTold(t *testing.T) {
	client, screen := net.Pipe()
	heard := serve(t, screen, []string{"RFB 003.008\n", "\x01\x01", "\x00\x00\x00\x00"}, []int{0, 12, 1})
	if err := rfb.MovePointer(client); err == nil {
		t.Error("no error")
	}
	<-heard
}
