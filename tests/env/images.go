package env

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Image is one of the images that `make images` built.
type Image struct {
	// Ref is the name by which the cluster pulls or has it.
	Ref     string `json:"ref"`
	Archive string `json:"archive"`
	Digest  string `json:"digest"`
	Size    int64  `json:"size"`
}

// Images returns the built images by name, with the names under REGISTRY when that is set.
func (c *Cluster) Images() (map[string]Image, error) {
	data, err := os.ReadFile(filepath.Join(c.Root, "bin/images.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the images are not built; build them with: make images")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the index of images: %w", err)
	}
	images := map[string]Image{}
	if err := json.Unmarshal(data, &images); err != nil {
		return nil, fmt.Errorf("reading the index of images: %w", err)
	}
	registry := strings.TrimSuffix(os.Getenv("REGISTRY"), "/")
	if registry == "" {
		if c.Existing {
			return nil, errors.New("CLUSTER=existing needs REGISTRY, from which the cluster pulls the images")
		}
		return images, nil
	}
	for name, image := range images {
		image.Ref = registry + image.Ref[strings.LastIndex(image.Ref, "/"):]
		images[name] = image
	}
	return images, nil
}
