package importer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// askFor is how long a server is tried that does not answer: whoever asks asks again.
const askFor = 20 * time.Second

// ask learns which version of the image there is, and imports nothing: its name is the result's digest. That of a container image
// is the digest of its manifest, or of its index of architectures.
func ask(ctx context.Context, options PodOptions) (transfer.Result, error) {
	if strings.HasPrefix(options.URL, source.SchemeDocker) {
		return askRegistry(ctx, options)
	}
	from, err := options.source()
	if err != nil {
		return transfer.Result{}, err
	}
	from.RetryFor = askFor
	file, err := source.Open(ctx, from)
	if err != nil {
		return transfer.Result{}, err //nolint:wrapcheck // it names the server
	}
	defer file.Close()
	version := file.Version()
	if version == "" {
		return transfer.Result{}, transfer.Errorf(transfer.SourceFailed,
			"the server says neither ETag nor Last-Modified of %s, so a new one is not told from the old; give it a checksum, or use another server", file.Name())
	}
	return transfer.Result{Digest: version}, nil
}

// askRegistry asks the places of an image one after another. Where a version is known already, only one that does not have the image
// for us is passed over: what is behind one that cannot be asked may be older.
func askRegistry(ctx context.Context, options PodOptions) (transfer.Result, error) {
	from, err := options.registry()
	if err != nil {
		return transfer.Result{}, err
	}
	from.RetryFor, from.CertScratch = askFor, certPath(options.Options)
	places := from.Places
	if len(places) == 0 {
		places = []source.Place{{URL: from.URL, SkipVerify: from.SkipVerify}}
	}
	var before error
	for n, place := range places {
		from.Places = []source.Place{place}
		image, err := source.OpenRegistry(ctx, from)
		if err == nil {
			digest := image.Digest()
			return transfer.Result{Digest: digest}, image.Close()
		}
		withheld := slices.Contains([]transfer.Reason{transfer.NotFound, transfer.Unauthorized}, transfer.ReasonOf(err))
		before = source.Both(err, before)
		if n == len(places)-1 || !source.Elsewhere(err) || ctx.Err() != nil || options.Known && !withheld {
			break
		}
	}
	return transfer.Result{}, before
}

// checkTarget says what is missing, or has no meaning, of what is to be imported or only asked for.
func (o PodOptions) checkTarget() error {
	switch {
	case o.Ask && o.URL == "":
		return errors.New("--ask needs --url, of the image that is asked for")
	case o.Ask && (o.Target.Path != "" || o.CopyFrom != "" || o.ImageRoot != "" || o.Checksum != "" || o.Archive):
		return errors.New("--ask imports nothing; leave out --target, --copy-from, --image-root, --checksum and --archive")
	case o.Known && !o.Ask:
		return errors.New("--known goes with --ask alone")
	case !o.Ask && o.Target.Path == "":
		return errors.New("--target is missing: the block device, or the file of the disk")
	}
	return nil
}
