// Package catalog holds what an installation offers its users as data: the common
// instance types and preferences, which the operator installs for all namespaces.
// The YAML is generated from package declare.
package catalog

import (
	"embed"
	"io/fs"
)

//go:embed instancetypes/*.yaml preferences/*.yaml
var types embed.FS

// Types returns the YAML files of the common instance types and preferences.
func Types() fs.FS { return types }
