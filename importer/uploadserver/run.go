package uploadserver

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Options configure Run.
type Options struct {
	Import importer.Options
	// Address is where images are taken, ProgressAddress where the progress is served, which Token is the password of.
	Address, ProgressAddress, Token string
	// CertDir holds tls.crt and tls.key to serve with, and ca.crt, the authorities of clients.
	CertDir string
	// Client is the common name of who may send.
	Client string
	// TerminationLog is where the result goes as JSON; empty writes none.
	TerminationLog string
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
}

// Run serves until an image is whole, and writes the result for the controller; or until ctx ends.
func Run(ctx context.Context, options Options) error {
	logger := log.FromContext(ctx)
	if err := importer.LimitMemory(); err != nil {
		logger.Info("The upload takes more memory than it need", "because", err.Error())
	}
	progress := importer.NewProgress()
	stop, err := importer.ServeProgress(ctx, options.ProgressAddress, options.Token, progress)
	if err != nil {
		return fmt.Errorf("starting the upload server: %w", err)
	}
	defer stop()
	record := func(result transfer.Result) error { return importer.Report(options.TerminationLog, result) }
	result, err := serve(ctx, New(options.Import, options.Client, progress, record), options)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, record(transfer.Failed(err)))
	}
	if err != nil {
		return err
	}
	logger.Info("Upload done", "digest", result.Digest, "format", result.Format, "diskSize", result.DiskSize,
		"received", result.Downloaded, "written", result.Written, "milliseconds", result.Milliseconds)
	return nil
}
