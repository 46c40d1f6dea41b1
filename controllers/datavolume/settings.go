package datavolume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/storageprofile"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// unknownModes says that nothing tells which access modes a claim should ask for. That can
// change, with the StorageProfile or a default class. It begins with the field's words.
type unknownModes struct {
	message string
	// early says that the StorageProfile is still being made, which is nobody's mistake.
	early bool
}

func (u *unknownModes) Error() string { return u.message }

// obstacle is what the DataVolume waits for.
func (u *unknownModes) obstacle() *obstacle {
	if u.early {
		return &obstacle{reasonPending, u.message}
	}
	return &obstacle{reasonClaimNotValid, u.message}
}

// readConfig reads what holds for all DataVolumes: the CDIConfig, or the defaults while there is none, and what the CDI object
// says of pods.
func (r *Reconciler) readConfig(ctx context.Context, s *scope) error {
	config, err := get(ctx, r.Client, types.NamespacedName{Name: names.CDIConfigName}, &cdiv1.CDIConfig{})
	if err != nil {
		return err
	}
	cdi, err := cdiconfig.Installed(ctx, r.Client)
	if err != nil {
		return err
	}
	s.workload = cdiconfig.WorkloadOf(cdi)
	if config == nil {
		s.config = cdiconfig.Status(&cdiv1.CDIConfigSpec{}, nil)
		return nil
	}
	s.config, s.insecure = config.Status, config.Spec.InsecureRegistries
	s.ttl, s.tls = config.Spec.DataVolumeTTLSeconds, tlspolicy.OfProfile(config.Spec.TLSSecurityProfile)
	s.adopts = slices.Contains(config.Spec.FeatureGates, cdiconfig.GateClaimAdoption)
	return nil
}

// profile reads the StorageProfile of the class that the claim will have, where it is asked.
func (r *Reconciler) profile(ctx context.Context, s *scope, input *claimInput) error {
	if s.dv.Spec.Storage == nil || s.class == nil {
		return nil
	}
	var err error
	input.Profile, err = get(ctx, r.Client, types.NamespacedName{Name: s.class.Name}, &cdiv1.StorageProfile{})
	return err
}

// undecided finds the DataVolumes without a claim, which may wait for a StorageProfile or a class.
func (r *Reconciler) undecided(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.unfinished(ctx, func(dv *cdiv1.DataVolume) bool { return dv.Spec.Storage != nil })
}

// chooseModes sets the access modes and the volume mode that spec leaves out: a clone has its
// source's volume mode; what is still missing the StorageProfile tells, by its first set that
// fits what is there. A clone of a class that nobody knows has its source's access modes.
func chooseModes(spec *corev1.PersistentVolumeClaimSpec, in claimInput) error {
	spec.VolumeMode = givenMode(spec.VolumeMode, in)
	set := offered(in.Profile, spec)
	switch {
	case len(spec.AccessModes) > 0:
	case set != nil:
		spec.AccessModes = slices.Clone(set.AccessModes)
	case in.Source != nil && len(in.Source.access) > 0:
		spec.AccessModes = slices.Clone(in.Source.access)
	default:
		return nameModes(spec, in)
	}
	if spec.VolumeMode == nil {
		spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
		if set != nil && set.VolumeMode != nil {
			spec.VolumeMode = new(*set.VolumeMode)
		}
	}
	return nil
}

// givenMode is the volume mode that is asked for, or that what comes into the claim has; nil when
// the StorageProfile tells it.
func givenMode(asked *corev1.PersistentVolumeMode, in claimInput) *corev1.PersistentVolumeMode {
	switch {
	case asked != nil && *asked != "" && *asked != cdiv1.PersistentVolumeFromStorageProfile:
		return asked
	case in.Source != nil && in.Source.mode != "" && otherModes(in):
		return nil
	case in.Source != nil && in.Source.mode != "":
		return new(in.Source.mode)
	case in.Source != nil || contentType(in.DataVolume) == cdiv1.DataVolumeArchive: // a snapshot of which nobody says it, or files
		return new(corev1.PersistentVolumeFilesystem)
	}
	return nil
}

// offered is the first set of the profile that fits the modes that spec names, nil when there is none.
func offered(profile *cdiv1.StorageProfile, spec *corev1.PersistentVolumeClaimSpec) *cdiv1.ClaimPropertySet {
	if profile == nil {
		return nil
	}
	for i := range profile.Status.ClaimPropertySets {
		set := &profile.Status.ClaimPropertySets[i]
		offersMode := spec.VolumeMode == nil || set.VolumeMode != nil && *set.VolumeMode == *spec.VolumeMode
		offersAccess := len(spec.AccessModes) == 0 || slices.ContainsFunc(set.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
			return slices.Contains(spec.AccessModes, mode)
		})
		if len(set.AccessModes) > 0 && offersMode && offersAccess {
			return set
		}
	}
	return nil
}

// nameModes says which modes are missing, and where they can be named.
func nameModes(spec *corev1.PersistentVolumeClaimSpec, in claimInput) error {
	const instead = "name accessModes in spec.storage"
	switch {
	case in.Class == nil && spec.StorageClassName != nil && *spec.StorageClassName != "":
		return &unknownModes{message: fmt.Sprintf("PVC spec is missing accessMode and no storageClass to choose profile: storage class %s does not exist; create it, or %s", *spec.StorageClassName, instead)}
	case in.Class == nil:
		return &unknownModes{message: "PVC spec is missing accessMode and no storageClass to choose profile: it names no storage class and the cluster has no default one; name storageClassName, or " + instead}
	case in.Profile == nil || len(in.Profile.Status.Conditions) == 0:
		return &unknownModes{message: fmt.Sprintf("StorageProfile %s, which has the access modes, is being made", in.Class.Name), early: true}
	case spec.VolumeMode == nil:
		return &unknownModes{message: fmt.Sprintf("Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile %s; %s, or set the profile's claimPropertySets", in.Class.Name, instead)}
	}
	return &unknownModes{message: fmt.Sprintf("Spec is missing accessMode and cannot get access mode from StorageProfile %s; %s, or set the profile's claimPropertySets", in.Class.Name, instead)}
}

// enlarge makes the claim as large as its provisioner makes the least.
func enlarge(spec *corev1.PersistentVolumeClaimSpec, profile *cdiv1.StorageProfile) error {
	size := spec.Resources.Requests.Storage()
	if profile == nil || profile.Annotations[storageprofile.AnnotationMinimumSize] == "" || size.Sign() <= 0 {
		return nil
	}
	least, err := resource.ParseQuantity(profile.Annotations[storageprofile.AnnotationMinimumSize])
	if err != nil {
		return fmt.Errorf("annotation %s of StorageProfile %s is no quantity; write it like 4Gi: %w", storageprofile.AnnotationMinimumSize, profile.Name, err)
	}
	if size.Cmp(least) < 0 {
		spec.Resources.Requests[corev1.ResourceStorage] = least
	}
	return nil
}

// podResources is what an importer pod asks for and may have.
func podResources(config cdiv1.CDIConfigStatus) corev1.ResourceRequirements {
	if config.DefaultPodResourceRequirements == nil {
		config = cdiconfig.Status(&cdiv1.CDIConfigSpec{}, nil)
	}
	return *config.DefaultPodResourceRequirements.DeepCopy()
}
