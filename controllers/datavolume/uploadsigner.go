package datavolume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/upload"
)

// uploadSigner keeps the authority by which upload servers and cdi-uploadproxy know each other, and
// the proxy's certificate, which it publishes in a Secret without the authority's key.
type uploadSigner struct {
	r      *Reconciler
	keeper *certs.Keeper
	name   atomic.Pointer[string] // the newest authority that was seen
}

func newUploadSigner(r *Reconciler) *uploadSigner {
	return &uploadSigner{r: r, keeper: &certs.Keeper{
		Secret: client.ObjectKey{Namespace: r.options.Namespace, Name: upload.SignerSecret},
		Hosts:  []string{upload.ClientName}, Terms: certs.OfCDI(true), Client: true,
	}}
}

// errNoNamespace says that the authority has no place.
var errNoNamespace = errors.New("keeping the authority of upload servers: the namespace of the installation is not told")

// signerRetry is when what went wrong is tried again.
const signerRetry = 30 * time.Second

// Start keeps the authority fresh until ctx ends, and has the servers of an older one replaced.
func (u *uploadSigner) Start(ctx context.Context) error {
	if u.r.options.Namespace == "" {
		return nil
	}
	for {
		_, next, err := u.keep(ctx)
		wait := max(next.Sub(u.r.now()), time.Minute)
		if err != nil {
			log.FromContext(ctx).Error(err, "Keeping the certificates of uploads failed")
			wait = signerRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.keeper.Terms.Changed():
		case <-time.After(wait):
		}
	}
}

// authority is the newest that was seen; empty before any was.
func (u *uploadSigner) authority() string {
	if u == nil {
		return ""
	}
	if name := u.name.Load(); name != nil {
		return *name
	}
	return ""
}

// current returns the data of the authority's Secret, renewed when it is due.
func (u *uploadSigner) current(ctx context.Context) (map[string][]byte, error) {
	if u == nil || u.r.options.Namespace == "" {
		return nil, errNoNamespace
	}
	data, _, err := u.keep(ctx)
	return data, err
}

func (u *uploadSigner) keep(ctx context.Context) (data map[string][]byte, next time.Time, err error) {
	if err := u.keeper.Terms.Read(ctx, u.r.Client); err != nil {
		return nil, time.Time{}, err
	}
	data, next, err = u.keeper.KeepAll(ctx, u.r.live, u.r.Client, u.r.now())
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("keeping the authority of upload servers: %w", err)
	}
	if err := u.publish(ctx, data); err != nil {
		return nil, time.Time{}, err
	}
	if before := u.name.Swap(new(certs.Authority(data))); before == nil || *before != u.authority() {
		u.announce(ctx)
	}
	return data, next, nil
}

// publish writes the proxy's part of data where the proxy looks.
func (u *uploadSigner) publish(ctx context.Context, data map[string][]byte) error {
	wanted := map[string][]byte{certs.KeyCert: data[certs.KeyCert], certs.KeyKey: data[certs.KeyKey], certs.KeyBundle: data[certs.KeyBundle]}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.r.options.Namespace, Name: upload.ClientSecret}}
	err := u.r.live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("reading Secret %s: %w", upload.ClientSecret, err)
	}
	if maps.EqualFunc(secret.Data, wanted, bytes.Equal) {
		return nil
	}
	secret.Data = wanted
	if missing {
		err = u.r.Create(ctx, secret)
	} else {
		err = u.r.Update(ctx, secret)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) { // another worker has done it
		return fmt.Errorf("writing Secret %s: %w", upload.ClientSecret, err)
	}
	return nil
}

// announce brings a pass over every DataVolume that waits for an upload.
func (u *uploadSigner) announce(ctx context.Context) {
	var all cdiv1.DataVolumeList
	if err := u.r.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "Listing DataVolumes failed")
		return
	}
	for n := range all.Items {
		dv := &all.Items[n]
		if !isUpload(dv) || dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed {
			continue
		}
		u.r.wake(ctx, client.ObjectKeyFromObject(dv))
	}
}
