package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/images/cache"
)

// builtImage is one image's line of bin/images.json.
type builtImage struct {
	// Ref is the reference under which the archive is loaded: registry.local/<name>:<tag>.
	Ref string `json:"ref"`
	// Archive is the OCI archive's path.
	Archive string `json:"archive"`
	// Digest is the manifest's.
	Digest string `json:"digest"`
	// Size is the sum of the compressed layers in bytes.
	Size int64 `json:"size"`
}

// findCheckout returns the folder of the module that the working directory is in.
func findCheckout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "images", "locks")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no checkout of the project here: run this inside one")
		}
	}
}

func indexPath(checkout string) string { return filepath.Join(checkout, "bin", "images.json") }

func readIndex(checkout string) (map[string]builtImage, error) {
	images := map[string]builtImage{}
	text, err := os.ReadFile(indexPath(checkout))
	if errors.Is(err, os.ErrNotExist) {
		return images, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of built images: %w", err)
	}
	if err := json.Unmarshal(text, &images); err != nil {
		return nil, fmt.Errorf("reading %s (delete it and build again): %w", indexPath(checkout), err)
	}
	return images, nil
}

func writeIndex(checkout string, images map[string]builtImage) error {
	text, err := json.MarshalIndent(images, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the list of built images: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(checkout, "bin"), 0o755); err != nil {
		return fmt.Errorf("writing the list of built images: %w", err)
	}
	temp := fmt.Sprintf("%s.%d", indexPath(checkout), os.Getpid())
	if err := os.WriteFile(temp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the list of built images: %w", err)
	}
	if err := os.Rename(temp, indexPath(checkout)); err != nil {
		return fmt.Errorf("writing the list of built images: %w", err)
	}
	return nil
}

// writeBuilt leaves the description of a finished archive beside it.
func writeBuilt(built builtImage) error {
	text, err := json.Marshal(built)
	if err != nil {
		return fmt.Errorf("describing %s: %w", built.Archive, err)
	}
	if err := os.WriteFile(built.Archive+".json", text, 0o644); err != nil {
		return fmt.Errorf("describing %s: %w", built.Archive, err)
	}
	return nil
}

// readBuilt returns the description of an archive that is complete; false when there is none.
func readBuilt(archive string) (builtImage, bool, error) {
	text, err := os.ReadFile(archive + ".json")
	if errors.Is(err, os.ErrNotExist) {
		return builtImage{}, false, nil
	}
	if err != nil {
		return builtImage{}, false, fmt.Errorf("reading the description of %s: %w", archive, err)
	}
	if !cache.Exists(archive) {
		return builtImage{}, false, nil
	}
	var built builtImage
	if err := json.Unmarshal(text, &built); err != nil {
		return builtImage{}, false, fmt.Errorf("reading the description of %s (delete it): %w", archive, err)
	}
	return built, true, cache.Touch(archive)
}
