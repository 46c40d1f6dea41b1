// Package catalog holds what an installation offers its users as data: the common
// instance types and preferences, which the operator installs for all namespaces and
// whose YAML is generated from package declare, and the common boot images.
package catalog

import (
	"embed"
	"io/fs"
)

//go:embed instancetypes/*.yaml preferences/*.yaml
var types embed.FS

// Types returns the YAML files of the common instance types and preferences.
func Types() fs.FS { return types }

//go:embed bootsources/*.yaml
var sources embed.FS

// BootSources returns the YAML files of the common boot images: a DataImportCron each, without a
// namespace. The operator has them look for images at a time of its own.
func BootSources() fs.FS { return sources }
