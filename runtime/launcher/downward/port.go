package downward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	// rest is from one request to the next at the least, for each makes libvirt work.
	rest = time.Second
	// maxLine bounds a line of a request, in bytes.
	maxLine = 1 << 10

	request = "GET /metrics/XML"
	// end is after every answer.
	end = "\n\n"

	refusal     = "INVALID REQUEST" + end
	unavailable = "<metrics><!-- host metrics not available --><!-- VM metrics not available --></metrics>" + end
)

// Serve answers the guest on port until that is closed or ctx is done, one request at a time. report
// returns the document; while it fails, the guest is told of none.
func Serve(ctx context.Context, port net.Conn, report func(context.Context) ([]byte, error)) error {
	stop := context.AfterFunc(ctx, func() { _ = port.Close() })
	defer stop()
	lines := bufio.NewReaderSize(port, maxLine)
	for {
		began := time.Now()
		known, err := nextRequest(lines)
		if err != nil {
			return fmt.Errorf("reading a request for metrics: %w", err)
		}
		answer := refusal
		if known {
			answer = answerOf(ctx, report)
		}
		if _, err := port.Write([]byte(answer)); err != nil {
			return fmt.Errorf("answering a request for metrics: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest - time.Since(began)):
		}
	}
}

func answerOf(ctx context.Context, report func(context.Context) ([]byte, error)) string {
	document, err := report(ctx)
	if err != nil {
		return unavailable
	}
	return string(document) + end
}

// nextRequest waits for a request, which an empty line ends, and says whether it is a known one. Of
// one that is not, all that came with it is forgotten.
func nextRequest(lines *bufio.Reader) (known bool, err error) {
	for _, want := range []string{request, ""} {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false, err //nolint:wrapcheck // the caller says what was read
		}
		if err != nil || strings.TrimRight(string(line), "\r\n") != want {
			_, err := lines.Discard(lines.Buffered())
			return false, err //nolint:wrapcheck // of what is buffered nothing fails
		}
	}
	return true, nil
}
