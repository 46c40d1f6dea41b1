package main

import (
	"context"
	"io/fs"

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
			return append(append(accounts("/tmp"), fieldPrograms("/slipway")...),
				binary("slipway", slipway),
				tree.Entry{Path: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, File: certificateBundle},
			), nil
		},
		config: v1.Config{
			User: "1001:1001", WorkingDir: "/", Entrypoint: []string{"/slipway"},
			Env: []string{"PATH=/:/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		},
	}
}

// fieldPrograms are links to slipway by the names of the programs in the images of kubevirt-tekton-tasks, so that its Tasks run
// with no more than another image. cmd/slipway's entrypoint knows them.
func fieldPrograms(slipway string) []tree.Entry {
	var links []tree.Entry
	for _, name := range []string{
		"entrypoint", "copy-template", "create-vm", "disk-uploader", "disk-virt-customize", "disk-virt-sysprep", "execute-in-vm",
		"generate-ssh-keys", "modify-data-object", "modify-vm-template", "wait-for-vmi-status",
	} {
		links = append(links, tree.Entry{Path: "usr/local/bin/" + name, Mode: fs.ModeSymlink | 0o777, Data: slipway})
	}
	return links
}
