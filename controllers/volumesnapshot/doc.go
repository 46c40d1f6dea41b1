// Package volumesnapshot acts on VolumeSnapshots where nobody else does: it finds the
// volume and the class, makes the VolumeSnapshotContent that the driver's part on the
// volume's node works on, binds the two, and takes them away together.
//
// Where the cluster had the kinds of snapshot.storage.k8s.io before Slipway, it has a snapshot controller too, and this one
// stays away: the label app.kubernetes.io/managed-by of the definition decides.
package volumesnapshot
