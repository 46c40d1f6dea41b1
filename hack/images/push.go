//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/oci/archive"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
)

func runPush(ctx context.Context, options pushOptions) error {
	if options.registry == "" {
		return errors.New("no registry named: give --registry, e.g. --registry registry.example.org/slipway")
	}
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	images, err := readIndex(checkout)
	if err != nil {
		return err
	}
	for _, r := range recipes() {
		built, ok := images[r.name]
		if !ok {
			return fmt.Errorf("image %s is not built yet: run go run ./hack/images build", r.name)
		}
		ref, digest, err := pushOne(ctx, built, r.name, options)
		if err != nil {
			return fmt.Errorf("pushing image %s: %w", r.name, err)
		}
		fmt.Printf("%s@%s\n", ref, digest)
	}
	return nil
}

// pushOne copies an archive unchanged, so that the digest in the registry is the one in bin/images.json.
func pushOne(ctx context.Context, built builtImage, name string, options pushOptions) (string, string, error) {
	_, tag, _ := strings.Cut(built.Ref, ":")
	target := strings.TrimSuffix(options.registry, "/") + "/" + name + ":" + tag
	destination, err := docker.ParseReference("//" + target)
	if err != nil {
		return "", "", fmt.Errorf("reading the reference %s: %w", target, err)
	}
	source, err := archive.ParseReference(built.Archive + ":" + built.Ref)
	if err != nil {
		return "", "", fmt.Errorf("reading archive %s: %w", built.Archive, err)
	}
	policy, err := signature.NewPolicyContext(&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	if err != nil {
		return "", "", fmt.Errorf("making the signature policy: %w", err)
	}
	defer func() { _ = policy.Destroy() }()
	system := &types.SystemContext{}
	if options.insecure {
		system.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	}
	raw, err := copy.Image(ctx, policy, destination, source, &copy.Options{
		ReportWriter: os.Stderr, DestinationCtx: system, SourceCtx: &types.SystemContext{}, PreserveDigests: true,
	})
	if err != nil {
		return "", "", fmt.Errorf("copying to %s: %w", target, err)
	}
	digest, err := manifest.Digest(raw)
	if err != nil {
		return "", "", fmt.Errorf("reading the manifest of %s: %w", target, err)
	}
	return target, digest.String(), nil
}
