// Package v1beta1 is the HyperConverged v1beta1 API (hco.kubevirt.io): the field's older,
// flat shape of what package v1 says, converted to and from it without loss.
//
// +kubebuilder:object:generate=true
// +groupName=hco.kubevirt.io
package v1beta1
