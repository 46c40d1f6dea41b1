// Package virtualmachineinstance turns VirtualMachineInstances into launcher pods. It
// waits for a VMI's volumes, creates the pod, follows it until the guest is the
// node's virt-handler's to report on, notes the end of the pod or the loss of the
// node, and clears up when the VMI is deleted.
package virtualmachineinstance
