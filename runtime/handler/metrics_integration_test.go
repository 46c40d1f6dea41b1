//go:build integration

package handler_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// freeAddress is one that nobody listens at, now or later: who asks for any port gets one of the usual loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	id := os.Getpid()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", id>>8&0xff, id&0xff))
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// scrape reads the handler's metrics as a client does that speaks HTTP/1.1 only.
func (w *world) scrape(t *testing.T) string {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} //nolint:gosec // nobody knows its certificate
	one := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := one.Get("https://" + w.metrics + "/metrics")
	for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); { // it makes its certificate first
		time.Sleep(100 * time.Millisecond)
		answer, err = one.Get("https://" + w.metrics + "/metrics")
	}
	must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the scrape says %s: %s", answer.Status, body)
	}
	return string(body)
}

func (w *world) measures(t *testing.T) {
	defer w.startHandler(t)(syscall.SIGTERM)
	for name, role := range map[string]string{"measured": "launcher", "unknown": "old"} {
		vmi := w.newVMI(t, name, 1)
		pod := w.newPod(t, vmi)
		pod.run(t, "container-disk", pod.file(t)).wait(t)
		launcher := pod.run(t, role, string(vmi.UID))
		launcher.expect(t, "greeted", "sync "+name+" with disks [root] 1")
		w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })
		defer launcher.expectShutdown(t, 1, "over")
		defer w.delete(t, vmi)
	}
	wants := []string{
		`kubevirt_vmi_cpu_usage_seconds_total{kubernetes_vmi_label_kubevirt_io_nodeName="node1",name="measured",namespace="default",node="node1"} 2.5`,
		`slipway_vmi_measured{kubernetes_vmi_label_kubevirt_io_nodeName="node1",name="measured",namespace="default",node="node1",reason=""} 1`,
		`slipway_vmi_measured{kubernetes_vmi_label_kubevirt_io_nodeName="node1",name="unknown",namespace="default",node="node1",reason="old_launcher"} 0`,
	}
	var said string
	lacking := func(want string) bool { return !strings.Contains(said, want+"\n") }
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) { // its cache may not show the second guest yet
		said = w.scrape(t)
		missing := slices.IndexFunc(wants, lacking)
		if missing < 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s in\n%s", wants[missing], said)
		}
	}
}
