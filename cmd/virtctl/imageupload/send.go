package imageupload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	"github.com/slipway-vm/slipway/cmd/virtctl/progress"
)

// retryAfter is the first pause before the image is sent again; each further one is twice as long.
const retryAfter = 2 * time.Second

// maxAnswer is how much is read of what the proxy answers, in bytes.
const maxAnswer = 8 << 10

// transient is a failure after which the same image may be taken.
type transient struct{ cause error }

func (t transient) Error() string { return t.cause.Error() }
func (t transient) Unwrap() error { return t.cause }

// sendRepeatedly sends the image until it is taken, each time with a token of its own. An answer may
// be lost: what is filled after all has it.
func (u *upload) sendRepeatedly(ctx context.Context, to *proxy) error {
	pause := retryAfter
	for left := u.retries; ; left-- {
		err := u.send(ctx, to)
		if err != nil && u.target.filled(ctx) {
			return nil
		}
		if _, again := errors.AsType[transient](err); !again || left == 0 || ctx.Err() != nil {
			return err
		}
		u.say("%v; sending it again in %s", err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("stopping: %w", ctx.Err())
		}
		pause = min(2*pause, time.Minute)
	}
}

// token asks for a token for the claim.
func (u *upload) token(ctx context.Context) (string, error) {
	request := &cdiupload.UploadTokenRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "token-for-virtctl"},
		Spec:       cdiupload.UploadTokenRequestSpec{PvcName: u.name},
	}
	if err := u.client.Create(ctx, request); err != nil {
		return "", fmt.Errorf("asking for an upload token: %w", err)
	}
	return request.Status.Token, nil
}

// send sends the file once.
func (u *upload) send(ctx context.Context, to *proxy) error {
	token, err := u.token(ctx)
	if err != nil {
		return err
	}
	if _, err := u.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading the %s from its beginning: %w", u.noun(), err)
	}
	counted := progress.New(u.cmd.OutOrStdout(), u.bytes)
	defer counted.End()
	body := io.TeeReader(io.LimitReader(u.file, u.bytes), counted)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.base.JoinPath("v1beta1", "upload").String(), body)
	if err != nil {
		return fmt.Errorf("sending the %s: %w", u.noun(), err)
	}
	request.ContentLength = u.bytes
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/octet-stream")
	request.Header.Set("Expect", "100-continue") // a refusal comes before the image goes
	response, err := to.http.Do(request)
	if err != nil {
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
	err = fmt.Errorf("unexpected return value %d, %s", response.StatusCode, strings.TrimSpace(string(answer)))
	if response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusBadGateway || response.StatusCode == http.StatusInternalServerError {
		return transient{err}
	}
	return err
}

// unsent says why the image did not reach the proxy.
func (u *upload) unsent(err error) error {
	text := err.Error()
	if strings.Contains(text, "x509:") || strings.Contains(text, "tls:") {
		return fmt.Errorf("sending the %s: %w; give the address that cdi-uploadproxy's certificate is for, or --insecure", u.noun(), err)
	}
	return transient{fmt.Errorf("sending the %s: %w", u.noun(), err)}
}
