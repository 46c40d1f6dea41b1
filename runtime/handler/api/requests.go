package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/runtime/handler/rfb"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// maxBody bounds the body of a request in bytes.
const maxBody = 64 << 10

// softReboot asks the guest to restart, and tells users that it was asked.
func (s *Server) softReboot(w http.ResponseWriter, r *http.Request, guest guest) error {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if err := guest.session.SoftReboot(ctx); err != nil {
		return err
	}
	s.options.Recorder.Eventf(guest.vmi, nil, corev1.EventTypeNormal, "SoftRebooted", "SoftReboot", "VirtualMachineInstance soft rebooted")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Server) freeze(w http.ResponseWriter, r *http.Request, guest guest) error {
	limit, err := readTimeout(w, r)
	if err != nil {
		return err
	}
	if err := guest.needAgent(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if err := guest.session.Freeze(ctx, limit); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *Server) unfreeze(w http.ResponseWriter, r *http.Request, guest guest) error {
	if err := guest.needAgent(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if err := guest.session.Unfreeze(ctx); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// readTimeout reads after how many seconds a freeze ends by itself; 0 when the request
// leaves that open.
func readTimeout(w http.ResponseWriter, r *http.Request) (int32, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return 0, refusal(apierrors.NewBadRequest(fmt.Sprintf("reading the request: %v", err)))
	}
	var freeze v1.FreezeUnfreezeTimeout
	if err := yaml.Unmarshal(data, &freeze); err != nil {
		return 0, refusal(apierrors.NewBadRequest(fmt.Sprintf("reading unfreezeTimeout: %v", err)))
	}
	if freeze.UnfreezeTimeout == nil {
		return 0, nil
	}
	limit := freeze.UnfreezeTimeout.Duration
	if limit < 0 || limit > math.MaxInt32*time.Second {
		return 0, refusal(apierrors.NewBadRequest(fmt.Sprintf("unfreezeTimeout is %s; it must be neither negative nor longer than %d seconds", limit, math.MaxInt32)))
	}
	return int32(math.Ceil(limit.Seconds())), nil
}

// screenshot has the launcher draw into memory that the two share.
func (s *Server) screenshot(w http.ResponseWriter, r *http.Request, guest guest) error {
	if enabled := guest.vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; enabled != nil && !*enabled {
		return refusal(apierrors.NewBadRequest("No graphics devices are present."))
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if text := r.URL.Query().Get("moveCursor"); text != "" {
		move, err := strconv.ParseBool(text)
		if err != nil {
			return refusal(apierrors.NewBadRequest(fmt.Sprintf("moveCursor is %q; it must be true or false", text)))
		}
		if move {
			err = wake(ctx, guest)
		}
		if err != nil {
			return err
		}
	}
	fd, err := unix.MemfdCreate("screenshot", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("making room for a screenshot: %w", err)
	}
	picture := os.NewFile(uintptr(fd), "screenshot")
	defer func() { _ = picture.Close() }()
	if err := guest.session.Screenshot(ctx, picture); err != nil {
		return err
	}
	info, err := picture.Stat()
	if err != nil {
		return fmt.Errorf("looking at the screenshot: %w", err)
	}
	if info.Size() == 0 {
		return errors.New("the launcher took a screenshot without content")
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, io.NewSectionReader(picture, 0, info.Size())) // a client that is gone has nobody to tell
	return nil
}

// wakeDelay is how long a guest has to draw its screen again, of which nobody tells.
const wakeDelay = 500 * time.Millisecond

// wake moves the guest's pointer, which ends the saving of its screen.
func wake(ctx context.Context, guest guest) error {
	screen, err := connect(ctx, guest, protocol.ChannelVNC)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = screen.Close() })
	defer stop()
	defer func() { _ = screen.Close() }()
	if err := rfb.MovePointer(screen); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the screen: %w", ctx.Err())
	case <-time.After(wakeDelay):
		return nil
	}
}
