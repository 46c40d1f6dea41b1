package main

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

// certificateBundle is where Debian's ca-certificates package leaves all certificates in one file.
const certificateBundle = "/etc/ssl/certs/ca-certificates.crt"

// slipwayRecipe is the image of every component: the static program and the certificates of public authorities.
func slipwayRecipe() recipe {
	return recipe{
		name: "slipway",
		top: func(ctx context.Context, b *builder) ([]tree.Entry, error) {
			if err := debian.Require(ctx, map[string]string{certificateBundle: "ca-certificates"}); err != nil {
				return nil, err
			}
			slipway, err := b.program(ctx, program{name: "slipway"})
			if err != nil {
				return nil, err
			}
			return append(accounts("/tmp"),
				binary("slipway", slipway),
				tree.Entry{Path: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, File: certificateBundle},
			), nil
		},
		config: v1.Config{
			User: "1001:1001", WorkingDir: "/", Entrypoint: []string{"/slipway"},
			Env: []string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		},
	}
}
