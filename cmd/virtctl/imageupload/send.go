package imageupload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	"github.com/slipway-vm/slipway/cmd/virtctl/progress"
	shared "github.com/slipway-vm/slipway/internal/upload"
)

// retryAfter is the first pause before the image is sent again; each further one is twice as long.
const retryAfter = 2 * time.Second

// maxAnswer is how much is read of what the proxy answers, in bytes.
const maxAnswer = 8 << 10

// transient is a failure after which the same image may be taken.
type transient struct{ cause error }

func (t transient) Error() string { return t.cause.Error() }
func (t transient) Unwrap() error { return t.cause }

// sendRepeatedly sends the image until it is taken, each time with a token of its own, and goes on where the last time
// stopped when the upload server still has that. An answer may be lost: what is filled after all has it.
func (u *upload) sendRepeatedly(ctx context.Context, to *proxy) error {
	id, tries := rand.Text(), attempts{most: u.retries, left: u.retries, pause: retryAfter}
	for again := false; ; again = true {
		came := int64(0)
		var err error
		if again {
			came, err = u.resume(ctx, to, id)
		}
		tries.note(came, u.bytes)
		if came > 0 {
			u.say("Going on after %d of %d bytes", came, u.bytes)
		}
		if err == nil {
			err = u.send(ctx, to, id, came)
		}
		if err != nil && u.target.filled(ctx) {
			return nil
		}
		if _, passes := errors.AsType[transient](err); !passes || tries.over(came, u.bytes) || ctx.Err() != nil {
			return err
		}
		u.say("%v; sending it again in %s", err, tries.pause)
		select {
		case <-time.After(tries.pause):
		case <-ctx.Done():
			return fmt.Errorf("stopping: %w", ctx.Err())
		}
		tries.next()
	}
}

// attempts are those to send one file.
type attempts struct {
	most, left uint          // retries
	pause      time.Duration // before the next one
	came       int64         // the most bytes that have
	late       time.Time     // when a file that has come should be written; zero before
}

// note counts anew when more of the file, of size bytes, has come: slow as it may be, it gets there.
func (a *attempts) note(came, size int64) {
	if came > a.came {
		a.left, a.pause, a.came = a.most, retryAfter, came
	}
	if came == size && a.late.IsZero() {
		a.late = time.Now().Add(processed)
	}
}

// over reports whether no other attempt is made. While a file that has come is written one is: proxies before the server
// lose patience sooner than a large disk is written.
func (a *attempts) over(came, size int64) bool {
	written := came == size && time.Now().Before(a.late)
	return a.left == 0 && !written
}

func (a *attempts) next() {
	a.left, a.pause = max(a.left, 1)-1, min(2*a.pause, time.Minute)
}

// resume finds the way to the proxy again, and asks how many bytes the upload server has of the upload called id.
func (u *upload) resume(ctx context.Context, to *proxy, id string) (int64, error) {
	if err := to.reopen(ctx); err != nil {
		return 0, transient{err}
	}
	return u.came(ctx, to, id)
}

// came is how many bytes the upload server has of the upload called id: 0 when it knows of none, as others than
// Slipway's never do, or it is another server by now.
func (u *upload) came(ctx context.Context, to *proxy, id string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	request, err := u.request(ctx, to, http.MethodHead, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set(shared.HeaderUpload, id)
	response, err := to.http.Do(request)
	if err != nil {
		return 0, u.unsent(err)
	}
	defer response.Body.Close()
	came, err := strconv.ParseInt(response.Header.Get(shared.HeaderOffset), 10, 64)
	switch response.StatusCode {
	case http.StatusOK:
		if err == nil && came >= 0 && came <= u.bytes {
			return came, nil
		}
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return 0, nil
	}
	// Who then begins anew gives up what may be there.
	return 0, transient{fmt.Errorf("asking how much of the %s has come: %s", u.noun(), response.Status)}
}

// away says whether a server that answers so may take the image later, or has it: one before it may have lost patience.
func away(status int) bool {
	switch status {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusInternalServerError,
		http.StatusGatewayTimeout, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

// request is one to the proxy, with a token of its own.
func (u *upload) request(ctx context.Context, to *proxy, method string, body io.Reader) (*http.Request, error) {
	token, err := u.token(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, to.base.JoinPath("v1beta1", "upload").String(), body)
	if err != nil {
		return nil, fmt.Errorf("sending the %s: %w", u.noun(), err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return request, nil
}

// token asks for a token for the claim.
func (u *upload) token(ctx context.Context) (string, error) {
	request := &cdiupload.UploadTokenRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "token-for-virtctl"},
		Spec:       cdiupload.UploadTokenRequestSpec{PvcName: u.name},
	}
	if err := u.client.Create(ctx, request); err != nil {
		passes := unanswered(err)
		err = fmt.Errorf("asking for an upload token: %w", err)
		if passes {
			err = transient{err}
		}
		return "", err
	}
	return request.Status.Token, nil
}

// unanswered says whether err is of an API server that was not reached, or that may answer later.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	_, unreached := errors.AsType[net.Error](err)
	return (unreached || errors.Is(err, io.ErrUnexpectedEOF)) && !untrusted(err)
}

// untrusted says whether err is of a certificate.
func untrusted(err error) bool {
	text := err.Error()
	return strings.Contains(text, "x509:") || strings.Contains(text, "tls:")
}

// send sends the file once, as the upload called id, from byte came on.
func (u *upload) send(ctx context.Context, to *proxy, id string, came int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	counted := progress.From(u.cmd.OutOrStdout(), came, u.bytes)
	defer counted.End()
	rest := io.NewSectionReader(u.file, came, u.bytes-came) // of its own: an earlier request may still read from another
	body := newWatched(io.TeeReader(rest, counted), rest.Size(), u.patience, func() { cancel(errStalled) })
	defer body.late.Stop()
	go u.lookFor(ctx, body.taken, func() { cancel(errFilled) })
	request, err := u.request(ctx, to, http.MethodPost, body)
	if err != nil {
		return err
	}
	request.ContentLength = u.bytes - came
	request.Header.Set(shared.HeaderUpload, id)
	request.Header.Set(shared.HeaderOffset, strconv.FormatInt(came, 10))
	request.Header.Set("Content-Type", "application/octet-stream")
	if request.ContentLength > 0 {
		request.Header.Set("Expect", "100-continue") // a refusal comes before the image goes
	} else {
		request.Body = http.NoBody // all has come, and how it went is not known
	}
	response, err := to.http.Do(request)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errStalled):
		return u.unsent(errStalled)
	case err != nil && errors.Is(context.Cause(ctx), errFilled):
		return nil
	case err != nil:
		return u.unsent(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case response.StatusCode == http.StatusOK:
		return nil
	case err != nil:
		return transient{fmt.Errorf("sending the %s: reading the answer: %w", u.noun(), err)}
	}
	if elsewhere, err := response.Location(); err == nil {
		return fmt.Errorf("unexpected return value %d: it is at %s://%s; give that as --uploadproxy-url", response.StatusCode, elsewhere.Scheme, elsewhere.Host)
	}
	err = fmt.Errorf("unexpected return value %d, %s", response.StatusCode, strings.TrimSpace(string(answer)))
	if away(response.StatusCode) || response.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return transient{err}
	}
	return err
}

// lookFor calls filled when the target has its disk although nobody answers, once all of the file is taken: the answer
// was lost on its way.
func (u *upload) lookFor(ctx context.Context, taken <-chan struct{}, filled func()) {
	select {
	case <-taken:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-time.After(u.patience):
		case <-ctx.Done():
			return
		}
		if u.target.filled(ctx) {
			filled()
			return
		}
	}
}

// unsent says why the image did not reach the proxy.
func (u *upload) unsent(err error) error {
	if untrusted(err) {
		return fmt.Errorf("sending the %s: %w; give the address that cdi-uploadproxy's certificate is for, or --insecure", u.noun(), err)
	}
	return transient{fmt.Errorf("sending the %s: %w", u.noun(), err)}
}
