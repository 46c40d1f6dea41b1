// Package v1beta1 is the HostPathProvisioner v1beta1 API
// (hostpathprovisioner.kubevirt.io): which directories of the nodes hold volumes.
// The field names are those that users of the field's node-local storage know.
//
// +kubebuilder:object:generate=true
// +groupName=hostpathprovisioner.kubevirt.io
package v1beta1
