// Package v1beta1 is the VirtualMachineTemplate API (template.kubevirt.io): one
// VirtualMachine with parameters, and requests for one that is made of a VirtualMachine.
// v1alpha1, which is served too, has the same fields.
//
// +kubebuilder:object:generate=true
// +groupName=template.kubevirt.io
package v1beta1
