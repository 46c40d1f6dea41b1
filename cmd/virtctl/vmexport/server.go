package vmexport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/forward"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// server is where a volume is downloaded from.
type server struct {
	http  *http.Client
	close func()
	// instead is what else can be done when it does not answer, after a semicolon; empty for nothing.
	instead string
}

// links are those by which the export is reached: from outside the cluster where it is published,
// unless the user says otherwise.
func (d *download) links() (link *exportv1.VirtualMachineExportLink, inside bool, err error) {
	all := d.export.Status.Links
	switch {
	case all.External != nil && d.serviceURL == "" && !d.portForward:
		return all.External, false, nil
	case all.Internal != nil:
		return all.Internal, true, nil
	}
	return nil, false, fmt.Errorf("unable to access the volume info from '%s' VirtualMachineExport", d.key)
}

// reach returns the server of links: as they say, at --service-url, or through the API server.
func (d *download) reach(ctx context.Context, link *exportv1.VirtualMachineExportLink, inside bool) (*server, error) {
	trusted, err := x509.SystemCertPool()
	if err != nil || inside { // a server in the cluster is known by its own authority alone
		trusted = x509.NewCertPool()
	}
	if !trusted.AppendCertsFromPEM([]byte(link.Cert)) && inside && !d.insecure {
		return nil, fmt.Errorf("VirtualMachineExport %s does not say by whom its server's certificate is: status.links.internal.cert", d.key)
	}
	switch {
	case !inside:
		return &server{http: d.httpClient(trusted, ""), close: func() {}, instead: "; --port-forward goes through the API server instead"}, nil
	case d.serviceURL != "":
		return &server{http: d.httpClient(trusted, withPort(d.serviceURL)), close: func() {}}, nil
	}
	return d.forwarded(ctx, trusted)
}

// withPort is address with the port of a Service where it has none.
func withPort(address string) string {
	address = strings.TrimSuffix(strings.TrimPrefix(address, "https://"), "/")
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(vmexport.ServicePort))
}

// httpClient connects to address in the place of every other, unless that is "". Whoever answers must
// have the certificate of the host in the link.
func (d *download) httpClient(trusted *x509.CertPool, address string) *http.Client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 30 * time.Second,
		ResponseHeaderTimeout: time.Minute, DisableCompression: true, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: trusted, InsecureSkipVerify: d.insecure, MinVersion: tls.VersionTLS12}, //nolint:gosec // --insecure asks for it
	}
	if address != "" {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the server sends elsewhere, where the token is not to go")
	}}
}

// forwarded reaches the server's pod through the API server.
func (d *download) forwarded(ctx context.Context, trusted *x509.CertPool) (*server, error) {
	const instead = "publish the export's Service, and give --service-url"
	pod, err := d.pod(ctx)
	if err != nil {
		return nil, maybeLater(fmt.Errorf("finding the pod of VirtualMachineExport %s: %w; %s", d.key, err, instead))
	}
	config, err := d.cluster.Config()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was doing
	}
	port, stop, err := forward.To(ctx, config, forward.Port{Pod: pod, Remote: vmexport.Port, Local: d.localPort})
	if err != nil {
		return nil, maybeLater(fmt.Errorf("forwarding a port to pod %s: %w; %s", pod, err, instead))
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	return &server{http: d.httpClient(trusted, address), close: stop}, nil
}

// maybeLater is err of the way to the server, marked as broken unless the user has not the right to go it.
func maybeLater(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || strings.Contains(err.Error(), "forbidden") { // of a port, it is told in words alone
		return err
	}
	return broken{err}
}

// pod finds the pod that the export's Service leads to.
func (d *download) pod(ctx context.Context) (client.ObjectKey, error) {
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: d.key.Namespace, Name: d.export.Status.ServiceName}
	if err := d.client.Get(ctx, key, service); err != nil {
		return client.ObjectKey{}, fmt.Errorf("reading Service %s: %w", key.Name, err)
	}
	pods := &corev1.PodList{}
	if err := d.client.List(ctx, pods, client.InNamespace(d.key.Namespace), client.MatchingLabels(service.Spec.Selector)); err != nil {
		return client.ObjectKey{}, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return client.ObjectKeyFromObject(pod), nil
		}
	}
	return client.ObjectKey{}, fmt.Errorf("no pod of Service %s runs", key.Name)
}

// address chooses what of link is downloaded; unpack says that it is unpacked on the way.
func (d *download) address(link *exportv1.VirtualMachineExportLink) (address string, unpack bool, err error) {
	volume, err := d.chosen(link.Volumes)
	if err != nil {
		return "", false, err
	}
	urls := map[exportv1.ExportVolumeFormat]string{}
	for _, format := range volume.Formats {
		urls[format.Format] = format.Url
	}
	switch {
	case d.File != "" && urls[exportv1.Dir] != "":
		return strings.TrimSuffix(urls[exportv1.Dir], "/") + "/" + url.PathEscape(d.File), false, nil
	case d.File != "":
		return "", false, fmt.Errorf("volume %s of VirtualMachineExport %s has no single files", volume.Name, d.key)
	case d.format == formatRaw && urls[exportv1.KubeVirtRaw] != "":
		return urls[exportv1.KubeVirtRaw], false, nil
	}
	for _, format := range []exportv1.ExportVolumeFormat{exportv1.KubeVirtGz, exportv1.ArchiveGz} {
		if urls[format] != "" {
			return urls[format], d.format == formatRaw, nil
		}
	}
	return "", false, fmt.Errorf("unable to get a valid URL from '%s' VirtualMachineExport", d.key)
}

// chosen is the volume that the user means.
func (d *download) chosen(volumes []exportv1.VirtualMachineExportVolume) (*exportv1.VirtualMachineExportVolume, error) {
	var known []string
	for i := range volumes {
		if volumes[i].Name == d.volume || d.volume == "" && len(volumes) == 1 {
			return &volumes[i], nil
		}
		known = append(known, volumes[i].Name)
	}
	if d.volume == "" {
		return nil, fmt.Errorf("detected more than one downloadable volume in '%s' VirtualMachineExport: Select the expected volume using the --volume flag: %s", //nolint:staticcheck,revive // the field's own words
			d.key, strings.Join(known, ", "))
	}
	return nil, fmt.Errorf("VirtualMachineExport %s has no volume %s: name one of %s", d.key, d.volume, strings.Join(known, ", "))
}
