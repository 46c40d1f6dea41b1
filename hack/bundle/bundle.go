package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-vm/slipway/pipelines/gitops/bundle"
)

// Names of the two bundles under the registry's path.
const (
	nameTasks     = "slipway-tasks"
	namePipelines = "slipway-pipelines"
)

// index is where `hack/images build` lists what it built; a variable for tests.
var index = filepath.Join("bin", "images.json")

// placeholders are the images of the manifests, by the name of the image that takes their place.
var placeholders = map[string]string{
	"slipway":         "ghcr.io/slipway-vm/slipway",
	"slipway-guestfs": "ghcr.io/slipway-vm/slipway-guestfs",
}

// options are the flags of build and push.
type options struct {
	registry string
	tag      string
	images   map[string]string
	insecure bool
	out      string
}

// made is a bundle and what it is called.
type made struct {
	image v1.Image
	// tag is the reference with the tag, digest the one by digest.
	tag, digest string
}

// makeBundles makes both; the pipelines fetch their tasks from the other bundle by its digest.
func makeBundles(o options) ([]made, error) {
	if o.registry == "" {
		return nil, errors.New("no registry named: give --registry, e.g. --registry registry.example.com/slipway")
	}
	images, err := stepImages(o)
	if err != nil {
		return nil, err
	}
	tasks, err := bundle.Tasks(images)
	if err != nil {
		return nil, err
	}
	first, err := makeOne(o, nameTasks, tasks)
	if err != nil {
		return nil, err
	}
	pipelines, err := bundle.Pipelines(bundle.FromBundle(first.digest))
	if err != nil {
		return nil, err
	}
	second, err := makeOne(o, namePipelines, pipelines)
	return []made{first, second}, err
}

func makeOne(o options, repository string, objects []bundle.Object) (made, error) {
	image, err := bundle.Image(objects)
	if err != nil {
		return made{}, fmt.Errorf("making the bundle %s: %w", repository, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return made{}, fmt.Errorf("making the bundle %s: %w", repository, err)
	}
	reference := strings.TrimSuffix(o.registry, "/") + "/" + repository
	return made{image: image, tag: reference + ":" + o.tag, digest: reference + "@" + digest.String()}, nil
}

// stepImages are those of --image, and for the others what was last built and is pushed by `make push`.
func stepImages(o options) (map[string]string, error) {
	images := map[string]string{}
	if len(o.images) < len(placeholders) {
		if o.registry == "" {
			return nil, errors.New("give --registry, under which `make push` puts the images, or --image for each")
		}
		built, err := readIndex()
		if err != nil {
			return nil, err
		}
		for short, placeholder := range placeholders {
			if built[short].Ref != "" {
				images[placeholder] = strings.TrimSuffix(o.registry, "/") + built[short].Ref[strings.LastIndex(built[short].Ref, "/"):] + "@" + built[short].Digest
			}
		}
	}
	maps.Copy(images, o.images)
	return images, nil
}

type builtImage struct {
	Ref    string `json:"ref"`
	Digest string `json:"digest"`
}

func readIndex() (map[string]builtImage, error) {
	data, err := os.ReadFile(index)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: build the images with `make images`, or name them with --image", index)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of images: %w", err)
	}
	images := map[string]builtImage{}
	if err := json.Unmarshal(data, &images); err != nil {
		return nil, fmt.Errorf("reading %s: %w", index, err)
	}
	return images, nil
}

// runBuild writes the bundles as one OCI layout.
func runBuild(w io.Writer, o options, out string) error {
	bundles, err := makeBundles(o)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("clearing %s: %w", out, err)
	}
	to, err := layout.Write(out, empty.Index)
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	for _, b := range bundles {
		if err := to.AppendImage(b.image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.tag})); err != nil {
			return fmt.Errorf("writing %s to %s: %w", b.tag, out, err)
		}
		fmt.Fprintln(w, b.digest)
	}
	return nil
}

// runPush pushes the bundles under their tag and prints the references to commit, by digest.
func runPush(ctx context.Context, w io.Writer, o options) error {
	bundles, err := makeBundles(o)
	if err != nil {
		return err
	}
	var how []name.Option
	if o.insecure {
		how = append(how, name.Insecure)
	}
	for _, b := range bundles {
		reference, err := name.NewTag(b.tag, how...)
		if err != nil {
			return fmt.Errorf("reading the reference %s: %w", b.tag, err)
		}
		if err := remote.Write(reference, b.image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("pushing %s: %w", b.tag, err)
		}
		fmt.Fprintln(w, b.digest)
	}
	return nil
}
