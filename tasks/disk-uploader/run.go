package diskuploader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/claim"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/disk-uploader/containerdisk"
	"github.com/slipway-vm/slipway/tasks/disk-uploader/qcow2"
	"github.com/slipway-vm/slipway/tasks/disk-uploader/registry"
)

func run(ctx context.Context, call *declare.Call) error {
	o, err := read(call, call.Secret)
	if err != nil {
		return &declare.Exit{Code: codeUsage, Err: err}
	}
	late := fmt.Errorf("%s: %s are over", paramTimeout, o.timeout)
	ctx, stop := context.WithTimeoutCause(ctx, o.timeout, late)
	defer stop()
	from, err := look(ctx, call, o)
	if err != nil {
		return declare.Coded(codeGeneric, err)
	}
	if err := o.destination.Connect(ctx); err != nil {
		return declare.Coded(codeUpload, err)
	}
	path, err := disk(ctx, call, o)
	if err != nil {
		return declare.Coded(codeGeneric, err)
	}
	digest, err := upload(ctx, call.Log, path, from, o.destination)
	if err != nil {
		return declare.Coded(codeUpload, err)
	}
	call.Log.Info("uploaded", "image", o.destination.String(), "digest", digest)
	return declare.Coded(codeResults, errors.Join(
		call.Result(resultDigest, digest), call.Result(resultImageURL, o.destination.String()), call.Result(resultImageDigest, digest)))
}

// disk returns the path of the disk once no VM uses it.
func disk(ctx context.Context, call *declare.Call, o options) (string, error) {
	if err := claim.Await(ctx, call.Client, call.Log, client.ObjectKey{Namespace: call.Namespace, Name: o.volume}); err != nil {
		return "", err
	}
	path, err := claim.Find(call, paramVolume, false)
	if err != nil {
		return "", err
	}
	if err := claim.Unlocked(path); err != nil {
		return "", fmt.Errorf("%s: claim %s: %w", paramVolume, o.volume, err)
	}
	return path, nil
}

// upload pushes the disk as an image and returns the image's digest.
func upload(ctx context.Context, log *slog.Logger, path string, from source, to *registry.Repository) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("opening the disk: %w", err)
	}
	defer func() { _ = file.Close() }()
	before, size, err := state(file)
	if err != nil {
		return "", err
	}
	log.Info("reading the disk", "bytes", size)
	plan, err := qcow2.Read(ctx, file, size, nil)
	if err != nil {
		return "", fmt.Errorf("finding out what is in the disk: %w", err)
	}
	log.Info("uploading", "image", to.String(), "bytes", plan.Data())
	layer, err := to.Stream(ctx, func(w io.Writer) (containerdisk.Layer, error) {
		layer, err := containerdisk.WriteLayer(w, plan.Size(), func(w io.Writer) error {
			return plan.Write(ctx, &progress{Writer: w, log: log, total: plan.Size()}, file)
		})
		if err != nil {
			return layer, err
		}
		after, _, err := state(file)
		if err == nil && !after.Equal(before) {
			err = errors.New("the disk was changed while it was read: stop what writes to it and upload it again")
		}
		return layer, err
	})
	if err != nil {
		return "", err
	}
	image := containerdisk.Image{Layer: layer, Architecture: from.architecture, Labels: from.labels}
	config, err := image.Config()
	if err != nil {
		return "", err
	}
	manifest, err := image.Manifest(config)
	if err != nil {
		return "", err
	}
	if err := to.Blob(ctx, config); err != nil {
		return "", err
	}
	return to.Manifest(ctx, manifest)
}

// state is when the disk's file was written to last, and the size of the disk; a device does not
// tell the former.
func state(file *os.File) (written time.Time, size int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return written, 0, fmt.Errorf("looking at the disk: %w", err)
	}
	if info.Mode().IsRegular() {
		return info.ModTime(), info.Size(), nil
	}
	if size, err = file.Seek(0, io.SeekEnd); err != nil {
		return written, 0, fmt.Errorf("finding the device's size: %w", err)
	}
	return written, size, nil
}

// progress logs each tenth of total bytes that pass.
type progress struct {
	io.Writer
	log           *slog.Logger
	done, total   int64
	toldHundredth int64
}

func (p *progress) Write(data []byte) (int, error) {
	n, err := p.Writer.Write(data)
	p.done += int64(n)
	if percent := p.done * 100 / max(p.total, 1); percent >= p.toldHundredth+10 {
		p.toldHundredth = percent / 10 * 10
		p.log.Info("uploading", "percentage", p.toldHundredth)
	}
	return n, err //nolint:wrapcheck // a writer in between changes nothing
}
