package vnc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Kinds of viewers.
const (
	tiger        = "tiger"
	chicken      = "chicken"
	realVNC      = "real"
	remoteViewer = "remote-viewer"
)

// viewer is a program that shows a screen.
type viewer struct {
	kind, path string
}

// arguments are those by which the viewer shows the screen at address.
func (v viewer) arguments(address string) []string {
	switch v.kind {
	case remoteViewer:
		return []string{"vnc://" + address}
	case realVNC:
		return []string{address, "-WarnUnencrypted=0", "-Shared=0", "-ShareFiles=0"}
	}
	return []string{address}
}

// find makes sure that there is a viewer, and returns what runs it until it is closed.
func (v viewer) find() (func(ctx context.Context, address string) error, error) {
	switch v.kind {
	case tiger, chicken, realVNC, remoteViewer:
	case "":
		found, err := installed(runtime.GOOS)
		if err != nil {
			return nil, err
		}
		v = found
	default:
		return nil, fmt.Errorf("--vnc-type: %q is not known; write %s, %s, %s or %s", v.kind, tiger, chicken, realVNC, remoteViewer)
	}
	return func(ctx context.Context, address string) error {
		var output bytes.Buffer
		command := exec.CommandContext(ctx, v.path, v.arguments(address)...)
		command.Stdout, command.Stderr = &output, &output
		if err := command.Run(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("running %s: %w: %s", v.path, err, bytes.TrimSpace(output.Bytes()))
		}
		return nil
	}, nil
}

// installed finds a viewer of the machine, which runs system.
func installed(system string) (viewer, error) {
	if system == "darwin" {
		// The last is the newest.
		if matches, err := filepath.Glob("/Applications/TigerVNC Viewer*.app/Contents/MacOS/TigerVNC Viewer"); err == nil && len(matches) > 0 {
			return viewer{kind: tiger, path: matches[len(matches)-1]}, nil
		}
		for _, app := range []viewer{
			{chicken, "/Applications/Chicken.app/Contents/MacOS/Chicken"},
			{realVNC, "/Applications/VNC Viewer.app/Contents/MacOS/vncviewer"},
		} {
			if _, err := os.Stat(app.path); err == nil {
				return app, nil
			}
		}
	}
	for _, program := range []viewer{{remoteViewer, "remote-viewer"}, {tiger, "vncviewer"}} {
		if path, err := exec.LookPath(program.path); err == nil {
			return viewer{kind: program.kind, path: path}, nil
		}
	}
	return viewer{}, errors.New("could not find remote-viewer or vncviewer binary in $PATH; install one of them (Debian: virt-viewer, tigervnc-viewer), " +
		"name yours with --vnc-path and --vnc-type, or use --proxy-only")
}
