package transfer_test

import (
	"testing"

	"github.com/slipway-vm/slipway/internal/transfer"
)

func TestParseBandwidth(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "64Ki": 64 << 10, "50Mi": 50 << 20, "1G": 1e9, "100000": 100000} {
		if got, err := transfer.ParseBandwidth(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"fast", "50MiB", "0", "-1Mi", "1Ki"} {
		if got, err := transfer.ParseBandwidth(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
