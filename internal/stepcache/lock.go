package stepcache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
)

// How long a Lease lasts unless it is renewed, how often it is renewed, and how far the clocks of
// nodes may be apart.
const (
	leaseDuration = 45 * time.Second
	leaseRenewal  = 15 * time.Second
	clockSkew     = time.Minute
	releaseBound  = 30 * time.Second // as long as a pod has from its end to its kill
)

// Lock is the right to do the work of a key. It lasts as long as its process does.
type Lock struct {
	Key   Key
	store *Store
	lease *coordinationv1.Lease // written by keep alone while it runs
	stop  context.CancelFunc
	ended chan struct{}
	lost  atomic.Bool
}

// LeaseName is the name of the Lease of a key.
func LeaseName(key Key) string { return namePrefix + key.digits()[:min(40, len(key.digits()))] }

// tryLock takes the key's Lease if nobody holds it, and returns nil and the Lease when somebody does.
func (s *Store) tryLock(ctx context.Context, key Key) (*Lock, *coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	at := client.ObjectKey{Namespace: s.Run.Namespace, Name: LeaseName(key)}
	err := s.Client.Get(ctx, at, lease)
	switch {
	case apierrors.IsNotFound(err):
		lease = s.newLease(at)
		err = s.Client.Create(ctx, lease, client.FieldOwner(FieldManager))
	case err == nil && !s.free(lease):
		return nil, lease, nil
	case err == nil:
		fresh := s.newLease(at)
		lease.OwnerReferences, lease.Spec = fresh.OwnerReferences, fresh.Spec
		err = s.Client.Update(ctx, lease, client.FieldOwner(FieldManager))
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil, nil // another was faster; look again
	}
	if err != nil {
		return nil, nil, fmt.Errorf("taking Lease %s of the step: %w", at, err)
	}
	keeping, stop := context.WithCancel(ctx)
	lock := &Lock{Key: key, store: s, lease: lease, stop: stop, ended: make(chan struct{})}
	go lock.keep(keeping)
	return lock, nil, nil
}

func (s *Store) newLease(at client.ObjectKey) *coordinationv1.Lease {
	now := metav1.NewMicroTime(s.now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace, Name: at.Name,
			Labels: map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "step-cache"},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(s.Run.holder()), LeaseDurationSeconds: new(int32(leaseDuration / time.Second)),
			AcquireTime: &now, RenewTime: &now,
		},
	}
	if s.Run.Owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*s.Run.Owner}
	}
	return lease
}

// free reports whether the run may take the Lease: it is nobody's, an earlier try of the same run
// held it, or its holder has not renewed it for longer than clocks explain.
func (s *Store) free(lease *coordinationv1.Lease) bool {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	return holder == "" || holder == s.Run.holder() || Expired(lease, s.now())
}

// Expired reports whether the holder of the Lease is gone, as far as clocks tell.
func Expired(lease *coordinationv1.Lease, now time.Time) bool { return now.After(Expiry(lease)) }

// Expiry is when a holder that does not renew the Lease is gone.
func Expiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return lease.Spec.RenewTime.Add(duration + clockSkew)
}

// awaitChange waits until the Lease is renewed, released or not renewed in time; gone says the
// last, by this process's own clock alone.
func (s *Store) awaitChange(ctx context.Context, lease *coordinationv1.Lease) (gone bool, err error) {
	bounded, stop := context.WithTimeout(ctx, s.patience())
	defer stop()
	err = await.Object(bounded, s.Client, &coordinationv1.LeaseList{}, client.ObjectKeyFromObject(lease),
		func(now *coordinationv1.Lease, exists bool) (bool, error) {
			return !exists || now.ResourceVersion != lease.ResourceVersion, nil
		})
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// evict takes the Lease from a holder that is gone. Another may be faster.
func (s *Store) evict(ctx context.Context, lease *coordinationv1.Lease) error {
	err := s.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("taking Lease %s from a run that is gone: %w", lease.Name, err)
	}
	return nil
}

// keep renews the Lease until ctx ends or another has it.
func (l *Lock) keep(ctx context.Context) {
	defer close(l.ended)
	ticks := time.NewTicker(leaseRenewal)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		renewed := l.lease.DeepCopy()
		renewed.Spec.RenewTime = new(metav1.NewMicroTime(l.store.now()))
		err := l.store.Client.Update(ctx, renewed, client.FieldOwner(FieldManager))
		switch {
		case err == nil:
			l.lease = renewed
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			l.lost.Store(true)
			return
		case ctx.Err() == nil:
			l.store.Log.Warn("the step's Lease could not be renewed", "lease", l.lease.Name, "cause", err.Error())
		}
	}
}

// Held reports whether the work is still this run's.
func (l *Lock) Held() bool { return !l.lost.Load() }

// Release gives the right back, also when ctx has ended. A nil Lock is none.
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.stop()
	<-l.ended
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer stop()
	err := l.store.Client.Delete(ctx, l.lease, client.Preconditions{UID: &l.lease.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("releasing Lease %s of the step: %w", l.lease.Name, err)
	}
	return nil
}

// errLost is the error of a run that was taken for gone while it worked.
var errLost = errors.New("the step's Lease was lost: another run took this one for gone")
