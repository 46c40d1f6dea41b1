package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// retry says how often something is tried again.
type retry struct {
	// backoff makes the pauses; its steps are the number of tries.
	backoff wait.Backoff
}

// defaultRetry gives a registry about two minutes to come back.
var defaultRetry = retry{backoff: wait.Backoff{Duration: time.Second, Factor: 2, Cap: 30 * time.Second, Steps: 8, Jitter: 0.1}}

// do runs try until it succeeds, fails for good, or failed too often.
func (r retry) do(ctx context.Context, log *slog.Logger, what string, try func() error) error {
	begun := time.Now()
	backoff := r.backoff
	for tries := 1; ; tries++ {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w; the last attempt: %w", what, context.Cause(ctx), err)
		case !passing(err):
			return fmt.Errorf("%s: %w", what, err)
		case tries >= r.backoff.Steps:
			return fmt.Errorf("%s: given up after %d attempts in %s: %w", what, tries, time.Since(begun).Round(time.Second), err)
		}
		pause := backoff.Step()
		log.Warn("trying again", "what", what, "in", pause.Round(time.Millisecond).String(), "reason", err.Error())
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w; the last attempt: %w", what, context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

// passing says whether the same may succeed later.
func passing(err error) bool {
	if answer, ok := errors.AsType[*Answer](err); ok {
		switch code := answer.Code; code {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusTooEarly:
			return true
		default:
			return code >= http.StatusInternalServerError && code != http.StatusNotImplemented
		}
	}
	var (
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		certificate x509.CertificateInvalidError
	)
	return !errors.Is(err, ErrPlain) && !errors.Is(err, errLost) && !errors.Is(err, errSource) && !errors.Is(err, errChunks) &&
		!errors.As(err, &authority) && !errors.As(err, &hostname) && !errors.As(err, &certificate)
}

// statusOf is the code of the registry's answer, 0 when it gave none.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*Answer](err); ok {
		return answer.Code
	}
	return 0
}
