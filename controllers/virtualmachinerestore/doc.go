// Package virtualmachinerestore makes a virtual machine what it was when a snapshot of it was taken: the same one, or a
// new one of another name.
//
// Every disk becomes a new claim, made from its VolumeSnapshot; the VM's definition is replaced, and names them. While
// that is done the VM is locked by its status.restoreInProgress, and does not start. The claims' names follow from the restore's uid,
// and the VM says by an annotation from which restore it is, so that whoever goes on after a controller was killed finds what was done. Until the
// definition is replaced, a restore that is deleted leaves the VM as it was; from then on it is carried to its end.
//
// With volumeRestorePolicy InPlace the new claims have the names of the old ones, which go first. Then a restore that is deleted half way
// leaves the VM with disks of before and of the snapshot, and with all of them.
package virtualmachinerestore
