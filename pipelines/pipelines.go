// Package pipelines embeds the pipelines that Slipway ships, with the templates that they use.
package pipelines

import "embed"

// Manifests holds the pipelines and their templates, without a namespace. Runs to
// copy (run.yaml) are not among them.
//
//go:embed */pipeline.yaml */template.yaml
var Manifests embed.FS
