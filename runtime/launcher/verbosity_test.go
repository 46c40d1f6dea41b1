package launcher

import (
	"log/slog"
	"testing"
)

func TestLevelOf(t *testing.T) {
	for verbosity, want := range map[string]slog.Level{
		"": slog.LevelInfo, "much": slog.LevelInfo, "0": slog.LevelWarn, "1": slog.LevelWarn, "2": slog.LevelInfo, "3": slog.LevelInfo,
		"4": slog.LevelDebug, "9": slog.LevelDebug,
	} {
		if got := levelOf(verbosity); got != want {
			t.Errorf("%q: %s, want %s", verbosity, got, want)
		}
	}
}
