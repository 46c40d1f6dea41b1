package certs

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/follow"
)

// Terms are the Lifetimes that an object asks for, while a program runs. They are DefaultLifetimes until something is asked
// for; so are those of a nil Terms, always.
type Terms struct {
	read    func(ctx context.Context, reader client.Reader) (Lifetimes, error)
	kind    client.Object
	of      func(object any) Lifetimes
	current atomic.Pointer[Lifetimes]
	changed chan struct{}
}

// OfKubeVirt are the Terms that the KubeVirt object asks for, in certificateRotateStrategy.
func OfKubeVirt() *Terms {
	of := func(object any) Lifetimes {
		if kv, is := object.(*virtv1.KubeVirt); is {
			return rotation(kv.Spec.CertificateRotationStrategy.SelfSigned)
		}
		return DefaultLifetimes()
	}
	return newTerms(&virtv1.KubeVirt{}, of, func(ctx context.Context, reader client.Reader) (Lifetimes, error) {
		list := &virtv1.KubeVirtList{}
		if err := reader.List(ctx, list); err != nil || len(list.Items) == 0 {
			return DefaultLifetimes(), err //nolint:wrapcheck // by Read
		}
		return of(&list.Items[0]), nil
	})
}

// OfCDI are the Terms that the CDI object asks for, in certConfig, of servers, or of clients.
func OfCDI(clients bool) *Terms {
	of := func(object any) Lifetimes {
		if cdi, is := object.(*cdiv1.CDI); is {
			return ofCDI(cdi.Spec.CertConfig, clients)
		}
		return DefaultLifetimes()
	}
	return newTerms(&cdiv1.CDI{}, of, func(ctx context.Context, reader client.Reader) (Lifetimes, error) {
		list := &cdiv1.CDIList{}
		if err := reader.List(ctx, list); err != nil || len(list.Items) == 0 {
			return DefaultLifetimes(), err //nolint:wrapcheck // by Read
		}
		return of(&list.Items[0]), nil
	})
}

func newTerms(kind client.Object, of func(any) Lifetimes, read func(context.Context, client.Reader) (Lifetimes, error)) *Terms {
	return &Terms{kind: kind, of: of, read: read, changed: make(chan struct{}, 1)}
}

// Lifetimes are those that hold now.
func (t *Terms) Lifetimes() Lifetimes {
	if t == nil {
		return DefaultLifetimes()
	}
	if current := t.current.Load(); current != nil {
		return *current
	}
	return DefaultLifetimes()
}

// Changed gets a value whenever the lifetimes have become others.
func (t *Terms) Changed() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.changed
}

// Read asks the object by reader, for what is made before anything follows it.
func (t *Terms) Read(ctx context.Context, reader client.Reader) error {
	if t == nil {
		return nil
	}
	lifetimes, err := t.read(ctx, reader)
	if meta.IsNoMatchError(err) {
		return nil // beside another installation there may be no such objects
	}
	if err != nil {
		return fmt.Errorf("reading how long certificates are valid: %w", err)
	}
	t.set(lifetimes)
	return nil
}

// Follow has the object asked for as long as mgr runs.
func (t *Terms) Follow(mgr ctrl.Manager) error {
	return follow.Object(mgr, t.kind, func(object any) { t.set(t.of(object)) }) //nolint:wrapcheck // it says what was done
}

func (t *Terms) set(lifetimes Lifetimes) {
	if t.Lifetimes() == lifetimes {
		return
	}
	t.current.Store(&lifetimes)
	select {
	case t.changed <- struct{}{}:
	default: // who is to look has not looked yet
	}
}

// rotation are the lifetimes that a KubeVirt object asks for. What was renamed counts by its old name, too.
func rotation(asked *virtv1.KubeVirtSelfSignConfiguration) Lifetimes {
	lifetimes := DefaultLifetimes()
	if asked == nil {
		return lifetimes
	}
	const part = 5 // of a lifetime is the time before its end, where only that is asked for
	ca, server := cmp.Or(asked.CA, &virtv1.CertConfig{}), cmp.Or(asked.Server, &virtv1.CertConfig{})
	lifetimes.CA, lifetimes.CARenewBefore = span(cmp.Or(asked.CARotateInterval, ca.Duration), cmp.Or(asked.CAOverlapInterval, ca.RenewBefore), part, lifetimes.CA, lifetimes.CARenewBefore)
	lifetimes.Serving, lifetimes.ServingRenewBefore = span(cmp.Or(asked.CertRotateInterval, server.Duration), server.RenewBefore, part, lifetimes.Serving, lifetimes.ServingRenewBefore)
	return lifetimes
}

// ofCDI are the lifetimes that a CDI object asks for, with those of servers' certificates, or of clients'.
func ofCDI(asked *cdiv1.CDICertConfig, clients bool) Lifetimes {
	lifetimes := DefaultLifetimes()
	if asked == nil {
		return lifetimes
	}
	leaf := asked.Server
	if clients {
		leaf = asked.Client
	}
	const part = 2
	ca, leaf := cmp.Or(asked.CA, &cdiv1.CertConfig{}), cmp.Or(leaf, &cdiv1.CertConfig{})
	lifetimes.CA, lifetimes.CARenewBefore = span(ca.Duration, ca.RenewBefore, part, lifetimes.CA, lifetimes.CARenewBefore)
	lifetimes.Serving, lifetimes.ServingRenewBefore = span(leaf.Duration, leaf.RenewBefore, part, lifetimes.Serving, lifetimes.ServingRenewBefore)
	return lifetimes
}

// span is how long certificates are valid, and how long before their end they are renewed: a part of that, where only their
// validity is asked for.
func span(duration, before *metav1.Duration, part time.Duration, valid, renew time.Duration) (time.Duration, time.Duration) {
	if duration != nil {
		valid, renew = duration.Duration, duration.Duration/part
	}
	if before != nil {
		renew = before.Duration
	}
	return valid, renew
}
