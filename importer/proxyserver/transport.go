package proxyserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// dialFor is for how long a server that is ready is looked for where its Service leads, and dialPause
// how long it is left alone in between.
const (
	dialFor   = 10 * time.Second
	dialPause = 250 * time.Millisecond
)

// buffer is how much is moved at a time, in bytes.
const buffer = 256 << 10

// Dialer connects to a Service.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Transport reaches servers with config by dial; nil does it by the cluster's DNS. A connection has one image or
// volume, so none is kept.
func Transport(dial Dialer, config *tls.Config) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialFor}).DialContext
	}
	return &http.Transport{
		DialContext: persistent(dial), TLSClientConfig: config,
		TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: true, DisableCompression: true,
		WriteBufferSize: buffer, ReadBufferSize: buffer,
	}
}

// persistent tries dial again for a while: that a server is ready is known here sooner than by the
// nodes' tables of Services.
func persistent(dial Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		until := time.Now().Add(dialFor)
		for {
			connection, err := dial(ctx, network, address)
			if err == nil || time.Now().After(until) {
				return connection, err
			}
			select {
			case <-ctx.Done():
				return nil, err
			case <-time.After(dialPause):
			}
		}
	}
}
