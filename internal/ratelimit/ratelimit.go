// Package ratelimit bounds how many requests a component makes of the API server, as the KubeVirt object says while the component
// runs: spec.configuration.{api,controller,handler,webhook}Configuration.restClient.rateLimiter.
package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/internal/follow"
)

// Component is one that has a limit of its own.
type Component struct {
	field string // of the configuration
	read  func(*virtv1.KubeVirtConfiguration) *virtv1.ReloadableComponentConfiguration
}

// Components with a limit of their own.
var (
	API = Component{"apiConfiguration", func(c *virtv1.KubeVirtConfiguration) *virtv1.ReloadableComponentConfiguration {
		return c.APIConfiguration
	}}
	Webhooks = Component{"webhookConfiguration", func(c *virtv1.KubeVirtConfiguration) *virtv1.ReloadableComponentConfiguration {
		return c.WebhookConfiguration
	}}
	Controller = Component{"controllerConfiguration", func(c *virtv1.KubeVirtConfiguration) *virtv1.ReloadableComponentConfiguration {
		return c.ControllerConfiguration
	}}
	Handler = Component{"handlerConfiguration", func(c *virtv1.KubeVirtConfiguration) *virtv1.ReloadableComponentConfiguration {
		return c.HandlerConfiguration
	}}
)

// Rate is how many requests a second are made, and how many at once after a rest. The zero value is no limit.
type Rate struct {
	QPS   float32
	Burst int
}

// String says r to people.
func (r Rate) String() string {
	if r == (Rate{}) {
		return "no limit"
	}
	return fmt.Sprintf("%g a second, %d at once", r.QPS, r.Burst)
}

// limit is r in the words of the bucket.
func (r Rate) limit() (rate.Limit, int) {
	if r == (Rate{}) {
		return rate.Inf, 1 // of no meaning with Inf, but while a limit is taken away: with 0 a request would be refused then
	}
	return rate.Limit(r.QPS), r.Burst
}

// Limiter is a limiter of client-go, for all clients that are made of one rest.Config together. Its rate can be changed; those who
// wait then wait anew.
type Limiter struct {
	base   Rate
	bucket *rate.Limiter

	mu      sync.Mutex // of all below
	current Rate
	changed chan struct{} // closed when the rate changes
}

// New returns a limiter that is base while the KubeVirt object says nothing.
func New(base Rate) *Limiter {
	return &Limiter{base: base, bucket: rate.NewLimiter(base.limit()), current: base, changed: make(chan struct{})}
}

// Follow has the KubeVirt object set the rate, by what it says of component, from when mgr runs on.
func (l *Limiter) Follow(mgr ctrl.Manager, component Component) error {
	log := mgr.GetLogger().WithName("ratelimit").WithValues("of", component.field)
	return follow.Object(mgr, &virtv1.KubeVirt{}, func(object any) { //nolint:wrapcheck // it says what was done
		kv, _ := object.(*virtv1.KubeVirt)
		l.set(log, l.of(kv, component))
	})
}

// of is what kv, which may be nil, says of component, and else what is while nothing is said.
func (l *Limiter) of(kv *virtv1.KubeVirt, component Component) Rate {
	if kv == nil {
		return l.base
	}
	if bucket := bucketOf(component.read(&kv.Spec.Configuration)); bucket != nil && bucket.QPS > 0 && bucket.Burst > 0 {
		return Rate{QPS: bucket.QPS, Burst: bucket.Burst}
	}
	return l.base
}

// bucketOf is what said has of a token bucket; nil for nothing.
func bucketOf(said *virtv1.ReloadableComponentConfiguration) *virtv1.TokenBucketRateLimiter {
	if said == nil || said.RestClient == nil || said.RestClient.RateLimiter == nil {
		return nil
	}
	return said.RestClient.RateLimiter.TokenBucketRateLimiter
}

// Validate returns what is wrong with what config, at path, says of requests.
func Validate(config *virtv1.KubeVirtConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, component := range []Component{API, Webhooks, Controller, Handler} {
		bucket := bucketOf(component.read(config))
		if bucket == nil {
			continue
		}
		at := path.Child(component.field, "restClient", "rateLimiter", "tokenBucketRateLimiter")
		if bucket.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), bucket.QPS, "write how many requests a second are made, more than 0; it goes together with burst"))
		}
		if bucket.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), bucket.Burst, "write how many requests are made at once, 1 or more; it goes together with qps"))
		}
	}
	return errs
}

// set makes the rate wanted.
func (l *Limiter) set(log logr.Logger, wanted Rate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wanted == l.current {
		return
	}
	log.Info("Changing how many requests are made of the API server", "from", l.current.String(), "to", wanted.String())
	limit, burst := wanted.limit()
	l.bucket.SetBurst(burst)
	l.bucket.SetLimit(limit)
	l.current = wanted
	close(l.changed)
	l.changed = make(chan struct{})
}

// now is the rate, and what is closed when that changes.
func (l *Limiter) now() (Rate, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current, l.changed
}

// TryAccept says whether a request may be made at once, and counts it if so.
func (l *Limiter) TryAccept() bool { return l.bucket.Allow() }

// Accept returns when a request may be made.
func (l *Limiter) Accept() {
	for {
		_, changed := l.now()
		if waited(nil, l.bucket.Reserve(), changed) {
			return
		}
	}
}

// Stop does nothing: nothing runs.
func (*Limiter) Stop() {}

// QPS is the rate; negative for no limit.
func (l *Limiter) QPS() float32 {
	current, _ := l.now()
	if current == (Rate{}) {
		return -1
	}
	return current.QPS
}

// Wait returns nil when a request may be made, and an error when ctx is done, or would be, before.
func (l *Limiter) Wait(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for the client's rate limiter: %w", err)
		}
		_, changed := l.now()
		reservation := l.bucket.Reserve()
		if deadline, has := ctx.Deadline(); has && time.Until(deadline) < reservation.Delay() {
			reservation.Cancel()
			return fmt.Errorf("waiting for the client's rate limiter: %w", context.DeadlineExceeded)
		}
		if waited(ctx.Done(), reservation, changed) {
			return nil
		}
	}
}

// waited waits for reservation, and says whether that came before done and changed. If not it is given back.
func waited(done <-chan struct{}, reservation *rate.Reservation, changed <-chan struct{}) bool {
	delay := reservation.Delay()
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
	case <-changed:
	}
	reservation.Cancel()
	return false
}
