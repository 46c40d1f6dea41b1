package main

import (
	"fmt"
	"io"
	"strings"
)

// listOptions are the flags of list.
type listOptions struct {
	// archives prints only the paths of the archives, for the cluster to load.
	archives bool
	// flags prints the images as flags of `slipway manifest`, under registry when that is set.
	flags    bool
	registry string
}

// manifestFlags are the flags of `slipway manifest`, by image.
var manifestFlags = [][2]string{{"slipway", "--image"}, {"slipway-launcher", "--launcher-image"}, {"slipway-guestfs", "--guestfs-image"}}

// runList prints what was last built.
func runList(w io.Writer, options listOptions) error {
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	images, err := readIndex(checkout)
	if err != nil {
		return err
	}
	if options.flags {
		for _, f := range manifestFlags {
			ref := images[f[0]].Ref
			if ref == "" {
				return fmt.Errorf("image %s is not built; run go run ./hack/images build", f[0])
			}
			if options.registry != "" {
				ref = strings.TrimSuffix(options.registry, "/") + ref[strings.LastIndex(ref, "/"):]
			}
			if _, err := fmt.Fprintln(w, f[1], ref); err != nil {
				return fmt.Errorf("listing images: %w", err)
			}
		}
		return nil
	}
	for _, r := range recipes() {
		built, ok := images[r.name]
		line := fmt.Sprintf("%-18s not built", r.name)
		switch {
		case ok && options.archives:
			line = built.Archive
		case ok:
			line = fmt.Sprintf("%-18s %-48s %9s  %s", r.name, built.Ref, megabytes(built.Size), built.Archive)
		case options.archives:
			continue
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("listing images: %w", err)
		}
	}
	return nil
}
