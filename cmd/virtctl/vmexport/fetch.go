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
	link, inside, err := d.links()
	if err != nil {
		return err
	}
	address, unpack, err := d.address(link)
	if err != nil {
		return err
	}
	token, err := d.token(ctx)
	if err != nil {
		return err
	}
	t := &transfer{download: d, address: address, token: token, unpack: unpack, to: d.stdout, pause: retryAfter}
	var file *os.File
	if d.output != stdoutName {
		if file, err = os.Create(d.output + partial); err != nil {
			return fmt.Errorf("creating the file to download to: %w", err)
		}
		defer file.Close() // again after it is whole, which does no harm
		t.to, t.file = file, file
	}
	if err := t.repeatedly(ctx, func() (*server, error) { return d.reach(ctx, link, inside) }); err != nil {
		return err
	}
	if file != nil {
		if err := errors.Join(file.Sync(), file.Close(), os.Rename(d.output+partial, d.output)); err != nil {
			return fmt.Errorf("ending the file %s: %w", d.output, err)
		}
	}
	d.say("Download finished succesfully\n") //nolint:misspell // as the field has it
	return nil
}

// transfer is what was fetched of one address until now.
type transfer struct {
	*download
	address, token string
	unpack         bool
	to             io.Writer
	file           *os.File // nil for standard output
	pause          time.Duration
	// had are the bytes that were written, of what the server calls by tag.
	had int64
	tag string
}

// repeatedly fetches until it is whole, with a connection of its own each time.
func (t *transfer) repeatedly(ctx context.Context, reach func() (*server, error)) error {
	for left := t.retries; ; left-- {
		err := t.once(ctx, reach)
		if _, again := errors.AsType[broken](err); !again || left == 0 || ctx.Err() != nil {
			return err
		}
		if t.had > 0 && t.file == nil && t.tag == "" {
			return fmt.Errorf("%w; what was written to standard output already cannot be taken back: name a file", err)
		}
		t.say("%v\nRetrying...\n", err)
		select {
		case <-time.After(t.pause):
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
		return unreached(err)
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
func unreached(err error) error {
	text := err.Error()
	if strings.Contains(text, "x509:") || strings.Contains(text, "tls:") {
		return fmt.Errorf("downloading: %w; what answers is not the export's server, or give --insecure", err)
	}
	return broken{fmt.Errorf("downloading: %w", err)}
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
	if t.file != nil {
		if _, err := t.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("beginning the file anew: %w", err)
		}
		if err := t.file.Truncate(0); err != nil {
			return fmt.Errorf("beginning the file anew: %w", err)
		}
	}
	t.had, t.tag = 0, ""
	if !t.unpack && response.Header.Get("Accept-Ranges") == "bytes" {
		if t.tag = response.Header.Get("ETag"); t.tag == "" {
			t.tag = response.Header.Get("Last-Modified")
		}
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
	n, err := io.Copy(t.to, from)
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
