// Package components holds what the operator installs: YAML, a folder for each component.
// Every folder but crds is Go text/template over render.Values.
package components

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed crds/*.yaml
var definitions embed.FS

//go:embed boot-sources cdi-uploadproxy monitoring populators priority rbac virt-api virt-controller virt-exportproxy virt-handler
var files embed.FS

// Monitoring is the component of those who watch the others; the rules for Prometheus, which
// are in catalog/monitoring, belong to it.
const Monitoring = "monitoring"

// UploadProxy is the component that is deployed for the CDI object; all others are for the KubeVirt object.
const UploadProxy = "cdi-uploadproxy"

// BootSources is the component of boot images and of the rights to them. It is not on the list of
// all, for its namespaces are others.
const BootSources = "boot-sources"

// Component is one folder: what is applied together, in the order of its files' names.
type Component struct {
	// Name is the folder's name and the value of the component label.
	Name string
	// Placement says which node placement its pods follow.
	Placement Placement
}

// Placement is a class of pods that are placed alike.
type Placement int

// Classes of placement.
const (
	Infra     Placement = iota // control plane, by the KubeVirt object
	Workload                   // on the nodes that run virtual machines, by the KubeVirt object
	DataInfra                  // control plane that is for disks alone, by the CDI object
)

// All lists the components in the order in which they are applied: rights before those who use them.
var All = []Component{
	{Name: "priority"},
	{Name: "rbac"},
	{Name: "virt-controller"},
	{Name: "virt-api"},
	{Name: UploadProxy, Placement: DataInfra},
	{Name: "virt-exportproxy"},
	{Name: "populators"},
	{Name: "virt-handler", Placement: Workload},
	{Name: Monitoring},
}

// Files returns the YAML of all components, a folder for each.
func Files() fs.FS { return files }

// Definitions returns the CustomResourceDefinitions, a file for each, at the top.
func Definitions() (fs.FS, error) {
	top, err := fs.Sub(definitions, "crds")
	if err != nil {
		return nil, fmt.Errorf("opening folder crds: %w", err)
	}
	return top, nil
}
