package virtualmachineexport

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/outside"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// Where the authorities of Routes are: in a ConfigMap of every namespace.
const (
	routeAuthorities = "kube-root-ca.crt"
	keyAuthorities   = "ca.crt"
)

// published is how virt-exportproxy is reached from outside of the cluster.
type published struct {
	// Host is the name, "" when it is not published. Certificate is who answers there and who vouches for that, in PEM; ""
	// when nobody says.
	Host, Certificate string
	// Former are the links as they were written, nil for none, where it cannot be found out now: Unknown.
	Former  *exportv1.VirtualMachineExportLink
	Unknown bool
}

// findPublished finds how exports that are ready are reached from outside. Where that fails the export is ready nevertheless, for
// those within the cluster, and what was said of outside stays: the next pass comes soon.
func (r *Reconciler) findPublished(ctx context.Context, s *scope) error {
	if s.phase() != exportv1.Ready {
		return nil
	}
	found, err := r.publication(ctx, s.now)
	if err != nil {
		log.FromContext(ctx).Error(err, "Finding how exports are reached from outside failed")
		found = published{Unknown: true}
		if links := status(s.export).Links; links != nil {
			found.Former = links.External
		}
	}
	s.published = found
	return nil
}

// publication finds the Ingress or else the Route to virt-exportproxy. Whom to trust there an administrator says; of Routes the
// cluster does, too. No Secret is read for it: one may have other keys in it.
func (r *Reconciler) publication(ctx context.Context, now time.Time) (published, error) {
	host, err := outside.ByIngress(ctx, r.Client, r.options.Namespace, vmexport.ProxyName)
	byRoute := err == nil && host == ""
	if byRoute {
		host, err = outside.ByRoute(ctx, r.live, r.options.Namespace, vmexport.ProxyName)
	}
	if err != nil || host == "" {
		return published{}, err
	}
	told, err := r.told()
	if err == nil && byRoute && len(told) == 0 {
		told, err = r.toldByCluster(ctx)
	}
	if err != nil {
		return published{}, err
	}
	return published{Host: host, Certificate: certificatesFor(host, told, now)}, nil
}

// told is whom to trust as the administrator says, nil when nothing is said.
func (r *Reconciler) told() ([]byte, error) {
	if r.options.Certificate == "" {
		return nil, nil
	}
	told, err := os.ReadFile(r.options.Certificate)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the certificate of Secret %s: %w", vmexport.PublishedSecret, err)
	}
	return told, nil
}

// toldByCluster is whom to trust as a cluster with Routes says for all of them, nil when it says nothing.
func (r *Reconciler) toldByCluster(ctx context.Context) ([]byte, error) {
	authorities := &corev1.ConfigMap{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: routeAuthorities}, authorities)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the authorities of Routes: %w", err)
	}
	return []byte(authorities.Data[keyAuthorities]), nil
}

// certificatesFor returns, in PEM, of the certificates in data the one that is for host and those that vouch for it; or all, where
// none is for host. What is not a certificate that is good now is left out, so that no key ever comes through.
func certificatesFor(host string, data []byte, now time.Time) string {
	var good []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		one, err := x509.ParseCertificate(block.Bytes)
		if block.Type == "CERTIFICATE" && err == nil && !now.Before(one.NotBefore) && !now.After(one.NotAfter) {
			good = append(good, one)
		}
	}
	var of *x509.Certificate
	for _, one := range good {
		if one.VerifyHostname(host) == nil && (of == nil || one.NotAfter.After(of.NotAfter)) {
			of = one
		}
	}
	if of != nil {
		good = chain(of, good)
	}
	var text bytes.Buffer
	for _, one := range good {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw}))
	}
	return strings.TrimSpace(text.String())
}

// chain is of with who vouches for it among known, and so on.
func chain(of *x509.Certificate, known []*x509.Certificate) []*x509.Certificate {
	all := []*x509.Certificate{of}
	for of != nil {
		var by *x509.Certificate
		for _, one := range known {
			if !slices.Contains(all, one) && bytes.Equal(of.RawIssuer, one.RawSubject) && of.CheckSignatureFrom(one) == nil {
				by = one
				break
			}
		}
		if of = by; of != nil {
			all = append(all, of)
		}
	}
	return all
}

// ofIngress requests all exports: how they are reached may be another.
func (r *Reconciler) ofIngress(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.those(ctx, "", func(*exportv1.VirtualMachineExport) bool { return true })
}
