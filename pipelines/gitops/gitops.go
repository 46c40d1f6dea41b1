// Package gitops embeds what Slipway ships for Argo CD and Flux: health of its kinds, how to
// track objects, and runs started by Pipelines-as-Code and Triggers.
package gitops

import "embed"

// Files holds the YAML of this folder, all of it.
//
//go:embed argocd flux components cluster-resolver all:examples
var Files embed.FS
