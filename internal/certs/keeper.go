package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keeper keeps one Secret's certificates fresh and serves with them.
type Keeper struct {
	// Secret is where the certificates are.
	Secret client.ObjectKey
	// Hosts are the names by which the server is reached.
	Hosts []string
	// Terms are how long certificates are valid; nil for DefaultLifetimes.
	Terms *Terms
	// Client says that the certificate is a client's, which has the first of Hosts as its name.
	Client bool

	serving atomic.Pointer[tls.Certificate]
}

// Keep reads the Secret with live, makes or renews what is due at now, and serves with
// the result from then on. Of replicas that renew at the same time one wins; the others
// take what it wrote. It returns the authorities to trust and when to look again.
func (k *Keeper) Keep(ctx context.Context, live client.Reader, writer client.Writer, now time.Time) (bundle []byte, next time.Time, err error) {
	data, next, err := k.KeepAll(ctx, live, writer, now)
	return data[KeyBundle], next, err
}

// KeepAll is Keep for who needs all that the Secret holds.
func (k *Keeper) KeepAll(ctx context.Context, live client.Reader, writer client.Writer, now time.Time) (data map[string][]byte, next time.Time, err error) {
	const attempts = 5
	for range attempts {
		data, next, err = k.keepOnce(ctx, live, writer, now)
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return data, next, err
		}
	}
	return nil, time.Time{}, fmt.Errorf("renewing the certificates in Secret %s: other replicas kept winning: %w", k.Secret, err)
}

func (k *Keeper) keepOnce(ctx context.Context, live client.Reader, writer client.Writer, now time.Time) (map[string][]byte, time.Time, error) {
	secret := &corev1.Secret{}
	err := live.Get(ctx, k.Secret, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, time.Time{}, fmt.Errorf("reading Secret %s: %w", k.Secret, err)
	}
	data, changed, next, err := k.renew(secret.Data, now)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("renewing the certificates in Secret %s: %w", k.Secret, err)
	}
	if changed {
		secret.Data = data
		if missing {
			secret.ObjectMeta = metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name}
			err = writer.Create(ctx, secret)
		} else {
			err = writer.Update(ctx, secret)
		}
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("writing Secret %s: %w", k.Secret, err)
		}
	}
	serving, err := tls.X509KeyPair(data[KeyCert], data[KeyKey])
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading the certificate in Secret %s: %w", k.Secret, err)
	}
	k.serving.Store(&serving)
	return data, next, nil
}

func (k *Keeper) renew(data map[string][]byte, now time.Time) (map[string][]byte, bool, time.Time, error) {
	if k.Client && len(k.Hosts) > 0 {
		return RenewClient(data, k.Hosts[0], k.Terms.Lifetimes(), now)
	}
	return Renew(data, k.Hosts, k.Terms.Lifetimes(), now)
}

// ErrNotReady says that no certificate has been read yet.
var ErrNotReady = errors.New("no serving certificate has been read yet")

// Certificate is the current one, for tls.Config.GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	serving := k.serving.Load()
	if serving == nil {
		return nil, ErrNotReady
	}
	return serving, nil
}
