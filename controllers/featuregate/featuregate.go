// Package featuregate knows the feature gates of the KubeVirt object that Slipway acts on: what is
// behind one is off until spec.configuration.developerConfiguration.featureGates names it.
package featuregate

import (
	"slices"

	virtv1 "kubevirt.io/api/core/v1"
)

// Gates that Slipway acts on.
const (
	// HostDisk is the gate of volumes on files of the node.
	HostDisk = "HostDisk"
	// VSOCK is the gate of sockets between guests and their nodes.
	VSOCK = "VSOCK"
	// DownwardMetrics is the gate of what tells guests of their nodes.
	DownwardMetrics = "DownwardMetrics"
	// ImageVolume is the gate of container disks as image volumes of their pods, which nodes must have. It
	// closes no field.
	ImageVolume = "ImageVolume"
	// IncrementalBackup is the gate of backups, and of the record of what is written to disks, by which those are that have only what has
	// changed. It closes no field.
	IncrementalBackup = "IncrementalBackup"
	// ClusterProfiler is the gate of the cluster profiler, which a field of its own turns on as well. It closes no field.
	ClusterProfiler = "ClusterProfiler"
)

// Known are the gates that Slipway acts on.
func Known() []string {
	return []string{HostDisk, VSOCK, DownwardMetrics, ImageVolume, IncrementalBackup, ClusterProfiler}
}

// Profiler says whether kv turns the cluster profiler on: by its field, or by the gate.
func Profiler(kv *virtv1.KubeVirt) bool {
	developer := kv.Spec.Configuration.DeveloperConfiguration
	return developer != nil && developer.ClusterProfiler || On(kv, ClusterProfiler)
}

// On says whether kv turns gate on. One that it also turns off is off.
func On(kv *virtv1.KubeVirt, gate string) bool {
	developer := kv.Spec.Configuration.DeveloperConfiguration
	return developer != nil && slices.Contains(developer.FeatureGates, gate) && !slices.Contains(developer.DisabledFeatureGates, gate)
}
