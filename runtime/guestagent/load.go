package guestagent

import (
	"context"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// loadCommand is known to agents since QEMU 10.0.
const loadCommand = "guest-get-load"

// Load is how many of the guest's processes ran or waited to, on average. An agent that does not know the
// command refuses it; a Report says whether it does.
func Load(ctx context.Context, channel Channel) (protocol.LoadStats, error) {
	var load struct {
		One     *float64 `json:"load1m"`
		Five    *float64 `json:"load5m"`
		Fifteen *float64 `json:"load15m"`
	}
	err := call(ctx, channel, loadCommand, nil, &load)
	return protocol.LoadStats{OneMinute: load.One, FiveMinutes: load.Five, FifteenMinutes: load.Fifteen}, err
}
