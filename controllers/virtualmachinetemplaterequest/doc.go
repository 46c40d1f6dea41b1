// Package virtualmachinetemplaterequest makes templates of virtual machines.
//
// A request takes a VirtualMachineSnapshot in the namespace of its VM, and has DataVolumes in its own filled from that. When all of them
// are, it makes a VirtualMachineTemplate whose VMs get copies of their disks, and gives the DataVolumes to it: they go with it. Whatever is
// made has the request's uid as a label and in its name, so that whoever goes on after a controller was killed finds what was done; a
// request that fails, or is deleted before it is ready, takes all of it back. Whether the request's creator may have the VM
// and its disks was asked at admission.
package virtualmachinetemplaterequest
