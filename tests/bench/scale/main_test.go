//go:build e2e

package scale

import (
	"os"
	"testing"

	"github.com/slipway-vm/slipway/tests/bench/goal"
)

// TestMain ends the benchmarks with how many goals were missed.
func TestMain(m *testing.M) { os.Exit(goal.Main(m)) }
