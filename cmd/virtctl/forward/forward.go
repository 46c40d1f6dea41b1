// Package forward opens ports of this machine that lead to pods, through the API server.
package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Port is a pod's port, and the one of this machine that is to lead there: 0 for any.
type Port struct {
	Pod           client.ObjectKey
	Remote, Local uint16
}

// To opens the port until stop is called, and returns the one of this machine, at 127.0.0.1.
func To(ctx context.Context, config *rest.Config, to Port) (local uint16, stop func(), err error) {
	stopped, ready := make(chan struct{}), make(chan struct{})
	said := &bytes.Buffer{}
	forwarder, err := newForwarder(config, to, stopped, ready, said)
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	stop = func() {
		close(stopped)
		err := <-ended
		_ = err // an end that was asked for is no failure
	}
	select {
	case err := <-ended:
		return 0, nil, errors.Join(err, errors.New(said.String()))
	case <-ctx.Done():
		stop()
		return 0, nil, fmt.Errorf("waiting for it: %w", ctx.Err())
	case <-ready:
	}
	opened, err := forwarder.GetPorts()
	if err != nil || len(opened) == 0 {
		stop()
		return 0, nil, fmt.Errorf("asking for the port: %w", err)
	}
	return opened[0].Local, stop, nil
}

// newForwarder prepares the forwarding, which ends when stopped is closed, closes ready when the port is open, and writes
// to said what goes wrong.
func newForwarder(config *rest.Config, to Port, stopped <-chan struct{}, ready chan struct{}, said io.Writer) (*portforward.PortForwarder, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to the API server: %w", err)
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's address: %w", err)
	}
	address := base.JoinPath("api", "v1", "namespaces", to.Pod.Namespace, "pods", to.Pod.Name, "portforward")
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	ports := []string{fmt.Sprintf("%d:%d", to.Local, to.Remote)}
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, stopped, ready, io.Discard, said)
	if err != nil {
		return nil, fmt.Errorf("preparing: %w", err)
	}
	return forwarder, nil
}
