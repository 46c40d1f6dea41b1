package transfer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestResultsFitATerminationMessage(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("x", 5000), strings.Repeat("ü\"\n", 5000), strings.Repeat("\x01", 5000)} {
		data, err := Failed(Errorf(TooSmall, "%s", text)).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > MaxMessage {
			t.Errorf("%d bytes", len(data))
		}
		got, err := Decode(string(data))
		if err != nil || got.Reason != TooSmall || got.Retryable || !utf8.ValidString(got.Message) {
			t.Errorf("%v: %+v", err, got)
		}
	}
	if _, err := Decode("panic: runtime error"); err == nil {
		t.Error("a log was taken for a result")
	}
}

func TestReasonsSurviveWrapping(t *testing.T) {
	err := fmt.Errorf("filling: %w", Errorf(ConnectionLost, "at byte 7: %w", io.ErrUnexpectedEOF))
	if ReasonOf(err) != ConnectionLost || !errors.Is(err, io.ErrUnexpectedEOF) || !ReasonOf(err).Retryable() {
		t.Errorf("%v has reason %s", err, ReasonOf(err))
	}
	if ReasonOf(io.EOF) != Internal {
		t.Error("an error without a reason has one")
	}
}

func TestPercent(t *testing.T) {
	for want, p := range map[string]Progress{
		"45.34%": {Done: 4534, Total: 10000}, "N/A": {Done: 5}, "100.00%": {Done: 11, Total: 10}, "0.00%": {Done: -1, Total: 10},
	} {
		if got := p.Percent(); got != want {
			t.Errorf("%+v: got %s, want %s", p, got, want)
		}
	}
}
