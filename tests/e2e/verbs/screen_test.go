//go:build e2e

package verbs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
)

// screen is virtctl at the screen of a guest.
type screen struct {
	command *exec.Cmd
	address string
	told    *gbytes.Buffer
}

// openScreen opens a port for viewers, until ctx ends or a viewer leaves.
func openScreen(ctx context.Context, ns, name string) *screen {
	GinkgoHelper()
	s := &screen{command: command(ctx, ns, "vnc", name, "--proxy-only"), told: gbytes.NewBuffer()}
	s.command.Stderr = io.MultiWriter(s.told, GinkgoWriter)
	printed, err := s.command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(s.command.Start()).To(Succeed())
	line, err := bufio.NewReader(printed).ReadBytes('\n')
	Expect(err).NotTo(HaveOccurred(), "the program printed %q", line)
	var answer struct{ Port int }
	Expect(json.Unmarshal(line, &answer)).To(Succeed())
	s.address = fmt.Sprintf("127.0.0.1:%d", answer.Port)
	return s
}

// greeted is a viewer that has read what the guest's screen says first.
func (s *screen) greeted(ctx context.Context) net.Conn {
	GinkgoHelper()
	viewer, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = viewer.Close() })
	Expect(viewer.SetReadDeadline(time.Now().Add(boundVerb))).To(Succeed())
	greeting := make([]byte, len("RFB 003.008\n"))
	_, err = io.ReadFull(viewer, greeting)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(greeting)).To(HavePrefix("RFB 003."))
	return viewer
}
