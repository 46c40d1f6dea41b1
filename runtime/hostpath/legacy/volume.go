package legacy

import (
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/slipway-vm/slipway/internal/names"
)

// volumePrefix begins the names of the volumes that provisioners make.
const volumePrefix = "pvc-"

// Kinds of data sources that a provisioner is asked to copy itself.
const (
	kindClaim    = "PersistentVolumeClaim"
	kindSnapshot = "VolumeSnapshot"
)

// servable refuses what such a volume cannot be.
func servable(options controller.ProvisionOptions) error {
	claim, class := options.PVC, options.StorageClass
	from := claim.Spec.DataSourceRef
	if from == nil && claim.Spec.DataSource != nil {
		from = &corev1.TypedObjectReference{Kind: claim.Spec.DataSource.Kind}
	}
	switch {
	case from != nil && from.Kind != kindClaim && from.Kind != kindSnapshot:
		return &controller.IgnoredError{Reason: fmt.Sprintf("a data source of kind %s is filled by its own controller", from.Kind)}
	case from != nil:
		return fmt.Errorf("a volume of %s cannot be a copy of a %s: leave dataSource out, or ask for a StorageClass of %s", names.LegacyHostPathDriver, from.Kind, names.HostPathDriver)
	case claim.Spec.Selector != nil:
		return errors.New("a claim with a selector cannot be provisioned: leave spec.selector out")
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock:
		return fmt.Errorf("a volume of %s cannot be a block device: leave volumeMode out, or ask for a StorageClass of %s", names.LegacyHostPathDriver, names.HostPathDriver)
	case len(class.Parameters) > 0:
		return fmt.Errorf("StorageClass %s has parameters, of which %s knows none: leave them out", class.Name, names.LegacyHostPathDriver)
	case len(class.MountOptions) > 0:
		return fmt.Errorf("StorageClass %s has mountOptions, which a directory cannot have: leave them out", class.Name)
	}
	return nil
}

// persistentVolume is the PersistentVolume for a claim, as the former provisioner wrote it; but a pod does not
// start where the directory is missing, rather than writing to the disk beneath, and the class's reclaim policy counts.
func persistentVolume(config Config, options controller.ProvisionOptions) *corev1.PersistentVolume {
	claim := options.PVC
	name := options.PVName
	if config.UseNamingPrefix {
		name = claim.Name + "-" + options.PVName
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName, Annotations: map[string]string{
			annotationIdentity: names.LegacyHostPathDriver, names.AnnotationProvisionOnNode: config.Hostname,
		}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *claim.Spec.Resources.Requests.Storage()},
			PersistentVolumeReclaimPolicy: ptr.Deref(options.StorageClass.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: path.Join(config.Path, name), Type: new(corev1.HostPathDirectory),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{config.Hostname}},
				},
			}}}},
		},
	}
}
