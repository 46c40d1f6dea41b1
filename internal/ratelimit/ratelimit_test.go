package ratelimit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/flowcontrol"
	virtv1 "kubevirt.io/api/core/v1"
)

var _ flowcontrol.RateLimiter = (*Limiter)(nil)

// saying is what a KubeVirt object says of one component.
func saying(qps float32, burst int) *virtv1.ReloadableComponentConfiguration {
	return &virtv1.ReloadableComponentConfiguration{RestClient: &virtv1.RESTClientConfiguration{RateLimiter: &virtv1.RateLimiter{
		TokenBucketRateLimiter: &virtv1.TokenBucketRateLimiter{QPS: qps, Burst: burst},
	}}}
}

func TestEachComponentHasItsOwn(t *testing.T) {
	base := Rate{QPS: 7, Burst: 8}
	kv := &virtv1.KubeVirt{}
	kv.Spec.Configuration.APIConfiguration, kv.Spec.Configuration.WebhookConfiguration = saying(1, 2), saying(3, 4)
	kv.Spec.Configuration.ControllerConfiguration = saying(5, 0)
	kv.Spec.Configuration.HandlerConfiguration = &virtv1.ReloadableComponentConfiguration{RestClient: &virtv1.RESTClientConfiguration{}}
	for name, c := range map[string]struct {
		component Component
		of        *virtv1.KubeVirt
		want      Rate
	}{
		"virt-api":                  {API, kv, Rate{1, 2}},
		"its webhooks":              {Webhooks, kv, Rate{3, 4}},
		"one of which half is said": {Controller, kv, base},
		"one of which nothing is":   {Handler, kv, base},
		"one without an object":     {API, nil, base},
	} {
		if got := New(base).of(c.of, c.component); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWithoutARateNothingWaits(t *testing.T) {
	l := New(Rate{})
	for range 10000 {
		if !l.TryAccept() {
			t.Fatal("a request was held back")
		}
	}
	if err := l.Wait(t.Context()); err != nil || l.QPS() >= 0 {
		t.Errorf("%v, and the rate is %v", err, l.QPS())
	}
}

func TestTheRateChangesForThoseWhoWait(t *testing.T) {
	l := New(Rate{})
	l.set(logr.Discard(), Rate{QPS: 0.001, Burst: 1})
	if !l.TryAccept() || l.TryAccept() || l.QPS() != 0.001 {
		t.Fatalf("the first of a burst of one is to pass, and no other; the rate is %v", l.QPS())
	}
	passed := make(chan error, 2)
	go func() { passed <- l.Wait(t.Context()) }()
	go func() { l.Accept(); passed <- nil }()
	select {
	case err := <-passed:
		t.Fatalf("a request was not held back: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	l.set(logr.Discard(), Rate{})
	for range 2 {
		select {
		case err := <-passed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("who waited does not see that nothing holds him back any more")
		}
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	l := New(Rate{QPS: 0.001, Burst: 1})
	l.Accept()
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.Wait(soon); err == nil || soon.Err() != nil {
		t.Errorf("who could not wait long enough is told at once: %v, %v", err, soon.Err())
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Wait(ctx) }()
	stop()
	if err := <-ended; err == nil {
		t.Error("a request whose context is done was made")
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		said *virtv1.ReloadableComponentConfiguration
		want string
	}{
		"nothing":          {},
		"both":             {said: saying(0.5, 1)},
		"no burst":         {said: saying(5, 0), want: "c.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst: Invalid value: 0"},
		"no rate":          {said: saying(0, 5), want: "c.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps: Invalid value: 0"},
		"less than none":   {said: saying(-1, 5), want: "qps: Invalid value: -1"},
		"an empty limiter": {said: &virtv1.ReloadableComponentConfiguration{RestClient: &virtv1.RESTClientConfiguration{RateLimiter: &virtv1.RateLimiter{}}}},
	} {
		errs := Validate(&virtv1.KubeVirtConfiguration{HandlerConfiguration: c.said}, field.NewPath("c"))
		if (c.want == "") != (len(errs) == 0) || len(errs) > 1 || len(errs) == 1 && !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, errs, c.want)
		}
	}
}
