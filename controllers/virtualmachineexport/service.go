package virtualmachineexport

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// identity is by what the servers of an export are known, one after the other. As no Secret is ever read, it
// is written on the Service, and on the pod.
type identity struct {
	// Certificate is the name of the Secret with the certificate and its key, Authority who made that, in PEM.
	Certificate, Authority string
}

// identityOf is the identity that is written on object, empty for none.
func identityOf(object client.Object) identity {
	written := object.GetAnnotations()
	known := identity{Certificate: written[annotationCertificate], Authority: written[annotationAuthority]}
	if known.Certificate == "" || known.Authority == "" {
		return identity{}
	}
	return known
}

func (i identity) annotations() map[string]string {
	return map[string]string{annotationCertificate: i.Certificate, annotationAuthority: i.Authority}
}

// makeService makes the Service that leads to the server, and before it the certificate of the export. A Service that
// was deleted is made again with that of the server.
func (r *Reconciler) makeService(ctx context.Context, s *scope) error {
	if s.lack != nil {
		return nil
	}
	service := &corev1.Service{}
	found, err := r.get(ctx, s.key(s.serverName()), service)
	switch {
	case err != nil:
		return err
	case found && !metav1.IsControlledBy(service, s.export):
		return s.notOurs("Service", service)
	case found && identityOf(service) != identity{}:
		s.known = identityOf(service)
		return nil
	case found: // somebody has taken its annotations away
		if err := r.Delete(ctx, service, client.Preconditions{UID: &service.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Service %s: %w", client.ObjectKeyFromObject(service), err)
		}
	}
	if s.pod != nil {
		s.known = identityOf(s.pod)
	}
	if (s.known == identity{}) {
		if err := r.issue(ctx, s); err != nil {
			return err
		}
	}
	return r.create(ctx, buildService(s.export, s.known))
}

// issue makes the certificate of the export's servers, by an authority of its own that signs nothing else. Whether the Service
// can be made is tried before: without it nobody knows of the certificate, and each pass would make another.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	if err := r.create(ctx, buildService(s.export, identity{}), client.DryRunAll); err != nil {
		return err
	}
	host := vmexport.Host(s.export.Namespace, s.export.Name)
	issued, err := certs.Alone([]string{host}, vmexport.Expiry(s.export).Add(margin).Sub(s.now), s.now)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", host, err)
	}
	known := identity{Certificate: s.serverName() + "-" + strings.ToLower(rand.Text()[:8]), Authority: string(issued.Bundle)}
	data := map[string][]byte{certs.KeyCert: issued.Cert, certs.KeyKey: issued.Key}
	if err := r.create(ctx, buildSecret(s.export, known.Certificate, data)); err != nil {
		return err
	}
	s.known = known
	return nil
}
