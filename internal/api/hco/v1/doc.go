// Package v1 is the HyperConverged v1 API (hco.kubevirt.io), the stored version: one
// object that brings up and configures everything that Slipway runs in a cluster.
//
// It has the field's groups and names for what Slipway acts on. What Slipway does not
// act on is not in the schema, so the API server refuses it with its path (kubectl asks
// for that by default) instead of taking it and doing nothing.
//
// +kubebuilder:object:generate=true
// +groupName=hco.kubevirt.io
package v1
