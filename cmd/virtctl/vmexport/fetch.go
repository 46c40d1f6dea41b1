package vmexport

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/cmd/virtctl/progress"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// stdoutName is the name of standard output.
const stdoutName = "-"

// partial ends the name of a file that is not whole.
const partial = ".partial"

// retryAfter is the pause before another try.
const retryAfter = 2 * time.Second

// maxRefusal is how much is read of why a volume is not given out, in bytes.
const maxRefusal = 8 << 10

// broken is a failure of the connection, after which the same may succeed.
type broken struct{ cause error }

func (b broken) Error() string { return b.cause.Error() }
func (b broken) Unwrap() error { return b.cause }

// fetch downloads what is asked for. A file gets its name when it is whole.
func (d *download) fetch(ctx context.Context) error {
	t := &transfer{download: d}
	defer t.close()
	if err := t.repeatedly(ctx, func() (*server, error) { return t.open(ctx) }); err != nil {
		return err
	}
	if err := t.end(); err != nil {
		return fmt.Errorf("ending the file %s: %w", d.output, err)
	}
	d.say("Download finished succesfully\n") //nolint:misspell // as the field has it
	return nil
}

// transfer is what was fetched of one address until now.
type transfer struct {
	*download
	address, token string
	unpack         bool
	file           *os.File // nil for standard output, and before anything came
	// had are the bytes that were written, of what the server calls by tag.
	had int64
	tag string
}

// open finds out, once the export is ready, what is downloaded, and reaches the server. Both may be others than before.
func (t *transfer) open(ctx context.Context) (*server, error) {
	link, inside, err := t.ready(ctx)
	if err != nil {
		return nil, err
	}
	if t.address, t.unpack, err = t.download.address(link); err != nil {
		return nil, err
	}
	if t.token, err = t.download.token(ctx); err != nil {
		return nil, err
	}
	return t.reach(ctx, link, inside)
}

// ready returns the links of the export once it is ready.
func (d *download) ready(ctx context.Context) (link *exportv1.VirtualMachineExportLink, inside bool, err error) {
	if err := d.await(ctx); err != nil {
		return nil, false, err
	}
	return d.links()
}

// end gives the file its name. A file that is there under that name stays when something goes wrong.
func (t *transfer) end() error {
	if t.file == nil {
		return nil
	}
	return named(t.file, t.output)
}

// named writes file to its disk and gives it its name.
func named(file *os.File, name string) error {
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("writing it: %w", err)
	}
	if err := os.Rename(file.Name(), name); err != nil {
		return fmt.Errorf("naming it: %w", err)
	}
	return nil
}

// close closes the file; again after it is whole, which does no harm.
func (t *transfer) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}

// repeatedly fetches until it is whole, with a connection of its own each time.
func (t *transfer) repeatedly(ctx context.Context, reach func() (*server, error)) error {
	return t.retried(ctx, func() error {
		err := t.once(ctx, reach)
		if err != nil && t.retries > 0 && t.had > 0 && t.file == nil && t.tag == "" {
			return fmt.Errorf("%s; what was written to standard output already cannot be taken back: name a file", err.Error())
		}
		return err
	})
}

// retried tries again when the connection broke, as often as the user wants.
func (d *download) retried(ctx context.Context, try func() error) error {
	for left := d.retries; ; left-- {
		err := try()
		if _, again := errors.AsType[broken](err); !again || left == 0 || ctx.Err() != nil {
			return err
		}
		d.say("%v\nRetrying...\n", err)
		select {
		case <-time.After(d.pause):
		case <-ctx.Done():
			return fmt.Errorf("stopping: %w", ctx.Err())
		}
	}
}

// once fetches what is missing, or all anew when the server does not have the same any more.
func (t *transfer) once(ctx context.Context, reach func() (*server, error)) error {
	server, err := reach()
	if err != nil {
		return err
	}
	defer server.close()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.address, http.NoBody)
	if err != nil {
		return fmt.Errorf("downloading: %w", err)
	}
	request.Header.Set(vmexport.Token, t.token)
	if t.had > 0 && t.tag != "" {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.had))
		request.Header.Set("If-Range", t.tag)
	}
	response, err := server.http.Do(request)
	if err != nil {
		return server.unreached(err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusPartialContent && t.had > 0:
	case response.StatusCode == http.StatusOK:
		if err := t.anew(response); err != nil {
			return err
		}
	default:
		return refusal(response)
	}
	return t.receive(response)
}

// unreached says why the server did not answer.
func (s *server) unreached(err error) error {
	text := err.Error()
	if strings.Contains(text, "x509:") || strings.Contains(text, "tls:") {
		return fmt.Errorf("downloading: %w; what answers is not the export's server, or give --insecure%s", err, s.instead)
	}
	return broken{fmt.Errorf("downloading: %w%s", err, s.instead)}
}

// refusal is what a server says that gives nothing.
func refusal(response *http.Response) error {
	said, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what was read is better than nothing
	err := fmt.Errorf("bad status: %s: %s", response.Status, strings.TrimSpace(string(said)))
	if response.StatusCode >= http.StatusInternalServerError {
		return broken{err}
	}
	return err
}

// anew begins at the beginning.
func (t *transfer) anew(response *http.Response) error {
	if t.had > 0 && t.file == nil {
		return errors.New("the volume changed, and what was written to standard output cannot be taken back: name a file")
	}
	if err := t.empty(); err != nil {
		return err
	}
	t.had, t.tag = 0, ""
	if !t.unpack && response.Header.Get("Accept-Ranges") == "bytes" {
		if t.tag = response.Header.Get("ETag"); t.tag == "" {
			t.tag = response.Header.Get("Last-Modified")
		}
	}
	return nil
}

// empty makes the file, or takes away what is in it.
func (t *transfer) empty() (err error) {
	switch {
	case t.output == stdoutName:
		return nil
	case t.file == nil:
		if t.file, err = os.Create(t.output + partial); err != nil {
			return fmt.Errorf("creating the file to download to: %w", err)
		}
		return nil
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("beginning the file anew: %w", err)
	}
	if err := t.file.Truncate(0); err != nil {
		return fmt.Errorf("beginning the file anew: %w", err)
	}
	return nil
}

// receive writes what comes.
func (t *transfer) receive(response *http.Response) error {
	counted := progress.New(t.out, max(response.ContentLength, 0))
	defer counted.End()
	var from io.Reader = &incoming{io.TeeReader(response.Body, counted)}
	if t.unpack {
		zip, err := gzip.NewReader(from)
		if err != nil {
			return fmt.Errorf("unpacking: %w", err)
		}
		from = zip
	}
	to := t.stdout
	if t.file != nil {
		to = t.file
	}
	n, err := io.Copy(to, from)
	t.had += n
	if err != nil {
		return fmt.Errorf("downloading: %w", err)
	}
	return nil
}

// incoming marks what goes wrong with the connection: what goes wrong with the file is another matter.
type incoming struct{ io.Reader }

func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken{err}
	}
	return n, err //nolint:wrapcheck // io.Reader's contract
}
