// Package v1beta3 is the SSP v1beta3 API (ssp.kubevirt.io): which namespaces get the
// provisioning tasks and pipelines. v1beta2 has the same fields and is served from the same types.
//
// +kubebuilder:object:generate=true
// +groupName=ssp.kubevirt.io
package v1beta3
