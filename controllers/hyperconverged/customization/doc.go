// Package customization changes components as spec.customizeComponents of the KubeVirt and of the CDI object says: by patches, and by
// flags of their programs. It is pure: no client, no clock, no environment.
package customization
