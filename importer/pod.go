package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// schemeStream begins the name of an image that OpenShift has looked up.
const schemeStream = "imagestream:"

// PodOptions are what an importer pod is told by flags, mounts and environment.
type PodOptions struct {
	Options
	// URL is the source: http, https, gs, or docker for an image in a registry; empty makes a blank disk.
	URL string
	// Architecture is that of the image, as in source.RegistryOptions.
	Architecture string
	// Server is the kind of the URL's server, one of transfer's; empty is transfer.SourceHTTP.
	Server string
	// Headers are extra headers, CertDir and ProxyCertDir authorities, SkipVerify takes any certificate: as in source.Options.
	Headers               []string
	CertDir, ProxyCertDir string
	SkipVerify            bool
	// From are where the image of a registry is looked for, as docker://host/name:tag, in this order; empty for
	// URL alone. InsecureFrom are those of them whose certificates are not checked.
	From, InsecureFrom []string
	// BytesPerSecond is how much is downloaded at most; 0 is no limit.
	BytesPerSecond int64
	// ImageRoot is the folder with the files of the image at URL, where the node has pulled it; empty asks its registry.
	ImageRoot string
	// CredentialsDir holds the files accessKeyId and secretKey, and sessionToken of temporary
	// credentials for S3; for Google Cloud Storage credentials.json.
	CredentialsDir string
	// SecretHeadersDir holds a directory for each Secret, with a header in each file.
	SecretHeadersDir string
	// Ask has it asked which version of the image there is, as the result's digest, and nothing imported. Known says that one
	// is known already.
	Ask, Known bool
	// TerminationLog is where the result goes as JSON; empty writes none.
	TerminationLog string
	// ProgressAddress is where the progress is served; empty serves none. Token is its password.
	ProgressAddress, Token string
}

// RunPod does one import as an importer pod does it: it serves its progress, writes its
// result for the controller, and returns the error of a failed import.
func RunPod(ctx context.Context, options PodOptions) error {
	if err := options.checkTarget(); err != nil {
		return err
	}
	logger := log.FromContext(ctx)
	logger.V(1).Info("Importing", "from", options.kind(), "target", options.Target.Path, "size", options.Target.Size, "preallocate", options.Target.Preallocate)
	if err := LimitMemory(); err != nil {
		logger.Info("The import takes more memory than it need", "because", err.Error())
	}
	progress := NewProgress()
	if options.ProgressAddress != "" {
		stop, err := ServeProgress(ctx, options.ProgressAddress, options.Token, progress)
		if err != nil {
			return err
		}
		defer stop()
	}
	result, err := run(ctx, options, progress)
	if err != nil {
		result = transfer.Failed(err)
		logger.Error(err, "Import failed", "reason", result.Reason, "retryable", result.Retryable)
	} else {
		logger.Info("Import done", "digest", result.Digest, "format", result.Format, "diskSize", result.DiskSize,
			"downloaded", result.Downloaded, "written", result.Written, "milliseconds", result.Milliseconds)
	}
	return errors.Join(err, Report(options.TerminationLog, result))
}

// kind names for logs what is imported, without an address, which may have a password.
func (o PodOptions) kind() string {
	switch {
	case o.Ask:
		return "nowhere: the version is asked for"
	case o.CopyFrom != "":
		return "another volume"
	case o.ImageRoot != "":
		return "an image that the node has pulled"
	case strings.HasPrefix(o.URL, source.SchemeDocker):
		return "a registry"
	case o.URL != "":
		return "a server of kind " + cmp.Or(o.Server, transfer.SourceHTTP)
	}
	return "nothing: the disk is blank"
}

func run(ctx context.Context, options PodOptions, progress *Progress) (transfer.Result, error) {
	if options.Ask {
		return ask(ctx, options)
	}
	copying, err := options.copies()
	switch {
	case err != nil:
		return transfer.Result{}, err
	case copying:
	case options.ImageRoot != "":
		from, err := options.pulled()
		if err != nil {
			return transfer.Result{}, err
		}
		options.Pulled = &from
	case strings.HasPrefix(options.URL, source.SchemeDocker):
		from, err := options.registry()
		if err != nil {
			return transfer.Result{}, err
		}
		options.Registry = &from
	case options.URL != "":
		from, err := options.source()
		if err != nil {
			return transfer.Result{}, err
		}
		options.Source = &from
	}
	return Run(ctx, options.Options, progress)
}

// source reads credentials and secret headers from their mounts.
func (o PodOptions) source() (source.Options, error) {
	from := source.Options{
		URL: o.URL, Headers: o.Headers, CertDir: o.CertDir, ProxyCertDir: o.ProxyCertDir, SkipVerify: o.SkipVerify, BytesPerSecond: o.BytesPerSecond,
	}
	if len(o.From) > 0 {
		return from, transfer.Errorf(transfer.BadRequest, "only an image of a registry is looked for in several places; the URL does not begin with %s", source.SchemeDocker)
	}
	if o.Architecture != "" {
		return from, transfer.Errorf(transfer.BadRequest, "an architecture chooses among images of a registry; the URL does not begin with %s", source.SchemeDocker)
	}
	if err := o.authenticate(&from); err != nil || o.SecretHeadersDir == "" {
		return from, err
	}
	names, err := filepath.Glob(filepath.Join(o.SecretHeadersDir, "*", "[^.]*"))
	if err != nil {
		return from, fmt.Errorf("listing secret headers: %w", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return from, fmt.Errorf("reading a secret header: %w", err)
		}
		from.SecretHeaders = append(from.SecretHeaders, strings.TrimSpace(string(data)))
	}
	return from, nil
}

// registry is source for an image in a registry.
func (o PodOptions) registry() (source.RegistryOptions, error) {
	from := source.RegistryOptions{
		URL: o.URL, Architecture: o.Architecture, CertDir: o.CertDir, ProxyCertDir: o.ProxyCertDir, SkipVerify: o.SkipVerify, BytesPerSecond: o.BytesPerSecond,
	}
	if o.Checksum != "" || len(o.Headers) > 0 || o.SecretHeadersDir != "" {
		return from, transfer.Errorf(transfer.BadRequest, "an image of a registry takes no checksum and no headers; name it by its digest: docker://host/name@sha256:…")
	}
	for _, address := range o.From {
		from.Places = append(from.Places, source.Place{URL: address, SkipVerify: slices.Contains(o.InsecureFrom, address)})
	}
	var err error
	from.Username, from.Password, err = o.login()
	return from, err
}

// pulled is source for an image that the node has pulled, in which this program runs.
func (o PodOptions) pulled() (source.PulledOptions, error) {
	from := source.PulledOptions{URL: o.URL, Root: o.ImageRoot, Environment: os.Environ()}
	if !strings.HasPrefix(o.URL, source.SchemeDocker) && !strings.HasPrefix(o.URL, schemeStream) || o.Archive {
		return from, transfer.Errorf(transfer.BadRequest, "the node pulls container images with a disk alone; the URL does not begin with %s, or an archive is asked for", source.SchemeDocker)
	}
	if o.Checksum != "" || len(o.Headers)+len(o.From)+len(o.InsecureFrom) > 0 || o.CertDir != "" || o.CredentialsDir != "" || o.SecretHeadersDir != "" ||
		o.Architecture != "" || o.SkipVerify || o.BytesPerSecond > 0 {
		return from, transfer.Errorf(transfer.BadRequest, "an image that the node has pulled is not downloaded; it takes nothing that says how")
	}
	return from, nil
}

// ServeProgress begins to serve the progress at address, for whoever knows token; stop lets
// listeners have the last line.
func ServeProgress(ctx context.Context, address, token string, progress *Progress) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving the progress: %w", err)
	}
	server := &http.Server{Handler: progress.Handler(token), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.FromContext(ctx).Error(err, "Serving the progress ended")
		}
	}()
	return func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		progress.end()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // a listener that does not go away is cut
		}
	}, nil
}

// Report writes result to the file at path, for the controller; to none when path is empty.
func Report(path string, result transfer.Result) error {
	if path == "" {
		return nil
	}
	data, err := result.Encode()
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
