// Package virtualmachineexport lets volumes be downloaded: those of a stopped virtual machine, those of a
// snapshot of one, or one claim.
//
// An export has a pod, which mounts the volumes to read them and gives them out for a token; a Service
// that leads there; and two Secrets, with the token and the certificate. Of a snapshot it has claims, too, which
// are made of its VolumeSnapshots. All of that goes with the export, which ends when its time is over.
package virtualmachineexport
