package declare

import (
	"io"
	"log/slog"
	"strings"
)

// NewLog returns a log of JSON records as the field's tasks write it: a level in lower case, and the
// message with its quotes escaped. Its debug records are written too: a task makes them only for a
// user who asked for more.
func NewLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: lowerLevel}))
}

func lowerLevel(_ []string, attr slog.Attr) slog.Attr {
	if level, ok := attr.Value.Any().(slog.Level); ok && attr.Key == slog.LevelKey {
		return slog.String(slog.LevelKey, strings.ToLower(level.String()))
	}
	return attr
}
