package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	containerimage "github.com/containers/image/v5/image"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// SchemeDocker begins the URL of an image in a registry.
const SchemeDocker = "docker://"

// RegistryOptions describe an image in a registry, which holds a disk below /disk.
type RegistryOptions struct {
	// URL is docker://host[:port]/name[:tag] or docker://host[:port]/name@digest.
	URL string
	// Architecture chooses among the images of several architectures, and is then demanded of the
	// image. Empty: this machine's is chosen, and none demanded.
	Architecture string
	// Username and Password are the registry's; both empty ask without.
	Username, Password string
	// CertDir and ProxyCertDir are as in Options.
	CertDir, ProxyCertDir string
	// CertScratch is a folder that is made for the time of opening, for what those hold.
	CertScratch string
	// SkipVerify takes any certificate, and also a registry that has no TLS.
	SkipVerify bool
	// Places are where the image is looked for instead, the first that gives it. Empty: at URL alone.
	Places []Place
	// BytesPerSecond, IdleTimeout and RetryFor are as in Options.
	BytesPerSecond        int64
	IdleTimeout, RetryFor time.Duration
}

// Registry is an image in a registry. It belongs to one goroutine, but for Progress.
type Registry struct {
	options RegistryOptions
	at      Place   // which is read from
	rest    []Place // after at
	before  error   // of the places before at; nil when it is the first
	source  types.ImageSource
	layers  []types.BlobInfo // the lowest first
	labels  map[string]string
	digest  string // of the manifest, or of the index of architectures
	limit   *limit
	counter counter
	total   counter // bytes of the layers that were opened
}

// OpenRegistry asks for an image's manifest and configuration. Bootable containers are
// refused: they hold the files of a system, and no disk.
func OpenRegistry(ctx context.Context, options RegistryOptions) (*Registry, error) {
	if options.IdleTimeout <= 0 {
		options.IdleTimeout = time.Minute
	}
	if options.RetryFor <= 0 {
		options.RetryFor = 2 * time.Minute
	}
	r := &Registry{options: options, limit: newLimit(options.BytesPerSecond)}
	defer func() { _ = os.RemoveAll(options.CertScratch) }() // it holds nothing secret, and the next attempt makes it anew
	places, err := options.openers()
	if err != nil {
		return nil, err
	}
	err = retry(ctx, time.Now(), options.RetryFor, func() error { return r.openFirst(ctx, places) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Name is the image's address where it is read from, for messages.
func (r *Registry) Name() string { return r.at.URL }

// Labels are those that the image asks for its disk's claim, as its environment says.
func (r *Registry) Labels() map[string]string { return r.labels }

// Digest is that of the image's manifest, or of its index where there are images of several architectures: what a tag stands for.
func (r *Registry) Digest() string { return r.digest }

// Progress counts the bytes of the layers that were opened.
func (r *Registry) Progress() transfer.Progress {
	return transfer.Progress{Done: r.counter.Load(), Total: r.total.Load()}
}

// Close ends the use of the registry.
func (r *Registry) Close() error {
	if err := r.source.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", r.Name(), err)
	}
	return nil
}

// system are the options in the library's words, but for what a place says. What it would look for in the home of a user is replaced.
func (o RegistryOptions) system() (*types.SystemContext, error) {
	system := &types.SystemContext{
		OSChoice: "linux", ArchitectureChoice: o.Architecture, DockerRegistryUserAgent: "slipway-importer",
		DockerAuthConfig: &types.DockerAuthConfig{Username: o.Username, Password: o.Password},
	}
	noRegistriesConf(system)
	if system.ArchitectureChoice == "" {
		system.ArchitectureChoice = runtime.GOARCH
	}
	if o.CertDir == "" && o.ProxyCertDir == "" {
		return system, nil
	}
	if _, err := certificates(o.CertDir, o.ProxyCertDir); err != nil {
		return nil, err
	}
	system.DockerCertPath = o.CertScratch
	return system, o.copyCertificates()
}

// copyCertificates names the certificates as the library wants them, which looks for *.crt and takes others for a client's.
func (o RegistryOptions) copyCertificates() error {
	if err := os.RemoveAll(o.CertScratch); err != nil {
		return transfer.Errorf(transfer.TargetFailed, "removing the certificates of an earlier attempt: %w", err)
	}
	if err := os.Mkdir(o.CertScratch, 0o700); err != nil {
		return transfer.Errorf(transfer.TargetFailed, "making a folder for certificates: %w", err)
	}
	var names []string
	for _, dir := range []string{o.CertDir, o.ProxyCertDir} {
		more, err := certificateFiles(dir)
		if err != nil {
			return err
		}
		names = append(names, more...)
	}
	for n, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading a certificate: %w", err)
		}
		if err := os.WriteFile(filepath.Join(o.CertScratch, fmt.Sprintf("%d.crt", n)), data, 0o600); err != nil {
			return transfer.Errorf(transfer.NoSpace, "copying a certificate: %w", err)
		}
	}
	return nil
}

// open asks once. What it leaves in r is whole, or nothing.
func (r *Registry) open(ctx context.Context, reference types.ImageReference, system *types.SystemContext) error {
	ctx, stop := context.WithTimeoutCause(ctx, r.options.IdleTimeout, errIdle)
	defer stop()
	from, err := reference.NewImageSource(ctx, system)
	if err != nil {
		return r.classify(ctx, err)
	}
	if err := r.describe(ctx, from, system); err != nil {
		_ = from.Close() // nothing was read that could be lost
		return err
	}
	r.source = from
	return nil
}

// describe learns what the image is made of.
func (r *Registry) describe(ctx context.Context, from types.ImageSource, system *types.SystemContext) error {
	unparsed := containerimage.UnparsedInstance(from, nil)
	data, kind, err := unparsed.Manifest(ctx)
	if err != nil {
		return r.classify(ctx, err)
	}
	digest, err := manifest.Digest(data)
	if err != nil {
		return transfer.Errorf(transfer.WrongFormat, "the manifest of %s cannot be read: %w; push the image anew", r.Name(), err)
	}
	if manifest.MIMETypeIsMultiImage(kind) {
		list, err := manifest.ListFromBlob(data, kind)
		if err != nil {
			return transfer.Errorf(transfer.WrongFormat, "the index of %s cannot be read: %w; push the image anew", r.Name(), err)
		}
		chosen, err := list.ChooseInstance(system)
		if err != nil {
			return transfer.Errorf(transfer.NotFound, "%s has no image for architecture %s; choose another one by platform.architecture", r.Name(), system.ArchitectureChoice)
		}
		unparsed = containerimage.UnparsedInstance(from, &chosen)
	}
	found, err := containerimage.FromUnparsedImage(ctx, system, unparsed)
	if err != nil {
		return r.classify(ctx, err)
	}
	config, err := found.OCIConfig(ctx)
	if err != nil {
		return r.classify(ctx, err)
	}
	if err := r.check(config); err != nil {
		return err
	}
	r.layers, r.labels, r.digest = found.LayerInfos(), labelsOf(config.Config.Env), digest.String()
	return nil
}

// check refuses an image by its configuration.
func (r *Registry) check(config *imagespec.Image) error {
	for _, label := range []string{"containers.bootc", "ostree.bootable"} {
		if value := config.Config.Labels[label]; value == "1" || value == "true" {
			return transfer.Errorf(transfer.WrongFormat,
				"%s is a bootable container (label %s) and holds no disk; make a disk of it with bootc-image-builder, and push that below /disk of an image", r.Name(), label)
		}
	}
	if want := r.options.Architecture; want != "" && config.Architecture != "" && config.Architecture != want {
		return transfer.Errorf(transfer.NotFound, "%s is an image for architecture %s, not %s; correct platform.architecture or the URL", r.Name(), config.Architecture, want)
	}
	return nil
}
