// Package kube is a small client of the cluster's API server: what the program
// itself asks for while it brings the cluster up.
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// Client talks to the API server as its administrator.
type Client struct {
	server string
	http   *http.Client
}

// New returns a client of the cluster.
func New(c layout.Cluster) (*Client, error) {
	cert, err := tls.LoadX509KeyPair(c.PKI("admin.crt"), c.PKI("admin.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	ca, err := os.ReadFile(c.PKI("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return &Client{server: c.Server(), http: &http.Client{Transport: transport, Timeout: time.Minute}}, nil
}

// StatusError is an answer that is no success.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is the server's own, or the start of its answer.
	Message string
}

// Error names status and message.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Message) }

// newStatusError takes the message out of the server's Status object.
func newStatusError(code int, body []byte) *StatusError {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = string(body[:min(len(body), 4000)])
	}
	return &StatusError{Code: code, Message: status.Message}
}

// NotFound tells whether an error is the server's 404.
func NotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// Get reads an object or a list.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	body, err := c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the answer to %s: %w", path, err)
	}
	return nil
}

// Delete removes an object; one that is not there is no error.
func (c *Client) Delete(ctx context.Context, path string) error {
	_, err := c.do(ctx, http.MethodDelete, path, "", nil)
	if NotFound(err) {
		return nil
	}
	return err
}

// Create posts an object.
func (c *Client) Create(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding an object for %s: %w", path, err)
	}
	_, err = c.do(ctx, http.MethodPost, path, "application/json", body)
	return err
}

// Apply makes one object be as given, by server-side apply.
func (c *Client) Apply(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding an object for %s: %w", path, err)
	}
	_, err = c.do(ctx, http.MethodPatch, path+"?fieldManager=slipway-cluster&force=true", "application/apply-patch+yaml", body)
	return err
}

func (c *Client) do(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking the API server for %s: %w", path, err)
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for %s: %w", path, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for %s: %w", path, err)
	}
	if response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %w", method, path, newStatusError(response.StatusCode, answer))
	}
	return answer, nil
}
