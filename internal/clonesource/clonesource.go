// Package clonesource finds the claim or snapshot that a DataVolume clones. Admission asks
// it to decide whether the DataVolume's creator may, and virt-controller to do it.
package clonesource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationAuthorized on a DataVolume names what its creator may clone of another namespace,
// as Source.Mark writes it. Only admission writes it: what a user writes there is removed,
// and it never changes afterwards.
const AnnotationAuthorized = names.Domain + "clone-authorized"

// labelDefaults begins the labels that say which instance type and preference suit a disk.
const labelDefaults = "instancetype.kubevirt.io/default-"

// Source is what a DataVolume clones.
type Source struct {
	// Claim is where the disk is; empty when it is in a snapshot.
	Claim types.NamespacedName
	// Snapshot is the VolumeSnapshot that has the disk; empty when it is in a claim.
	Snapshot types.NamespacedName
	// Labels say what instance type and preference suit it, as the DataSources on the way tell.
	Labels map[string]string
}

// markSnapshot begins the mark of a snapshot, which has one part more than any claim's.
const markSnapshot = "volumesnapshots/"

// InSnapshot reports whether the disk is in a VolumeSnapshot.
func (s *Source) InSnapshot() bool { return s.Snapshot.Name != "" }

// Key is the claim or snapshot.
func (s *Source) Key() types.NamespacedName {
	if s.InSnapshot() {
		return s.Snapshot
	}
	return s.Claim
}

// Mark names the source in annotations: namespace/name of a claim, volumesnapshots/namespace/name of a snapshot.
func (s *Source) Mark() string {
	if s.InSnapshot() {
		return markSnapshot + s.Snapshot.String()
	}
	return s.Claim.String()
}

// FromMark is the source that mark names, nil when it names none.
func FromMark(mark string) *Source {
	parts := strings.Split(mark, "/")
	if slices.Contains(parts, "") {
		return nil
	}
	switch {
	case len(parts) == 2:
		return &Source{Claim: types.NamespacedName{Namespace: parts[0], Name: parts[1]}}
	case len(parts) == 3 && parts[0]+"/" == markSnapshot:
		return &Source{Snapshot: types.NamespacedName{Namespace: parts[1], Name: parts[2]}}
	}
	return nil
}

// String names the source for a person.
func (s *Source) String() string {
	if s.InSnapshot() {
		return "VolumeSnapshot " + s.Snapshot.String()
	}
	return "PVC " + s.Claim.String()
}

// Allowing tells a person how others are allowed to clone the source.
func (s *Source) Allowing() string {
	return fmt.Sprintf("whoever runs namespace %s can allow it with a RoleBinding to a role that may create datavolumes/source of cdi.kubevirt.io there",
		s.Key().Namespace)
}

// Obstacle says why no claim was found.
type Obstacle struct {
	// Missing says that an object on the way does not exist yet.
	Missing bool
	// Final says that no other object can change it.
	Final bool
	// Message tells a person what is wrong and what to do.
	Message string
}

// Error is the message.
func (o *Obstacle) Error() string { return o.Message }

// Of returns what a DataVolume of namespace clones by its spec: the claim or snapshot that it
// names, or the one that its DataSource names, over one further DataSource at the most. It
// returns nil for a DataVolume that clones nothing, and an *Obstacle where none was found.
func Of(ctx context.Context, c client.Reader, namespace string, spec *cdiv1.DataVolumeSpec) (*Source, error) {
	if spec.SourceRef != nil && spec.SourceRef.Kind == cdiv1.DataVolumeDataSource {
		return follow(ctx, c, namespace, spec.SourceRef)
	}
	return Named(namespace, spec.Source), nil
}

// Named returns the claim or snapshot that is named itself in a namespace, nil when none is.
func Named(namespace string, source *cdiv1.DataVolumeSource) *Source {
	switch {
	case source != nil && source.PVC != nil:
		return &Source{Claim: key(source.PVC.Namespace, source.PVC.Name, namespace)}
	case source != nil && source.Snapshot != nil:
		return &Source{Snapshot: key(source.Snapshot.Namespace, source.Snapshot.Name, namespace)}
	}
	return nil
}

// key is what is named; without a namespace it is in home, that of what names it.
func key(namespace, name, home string) types.NamespacedName {
	if namespace == "" {
		namespace = home
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func follow(ctx context.Context, c client.Reader, namespace string, ref *cdiv1.DataVolumeSourceRef) (*Source, error) {
	at := key(ptr.Deref(ref.Namespace, ""), ref.Name, namespace)
	labels := map[string]string{}
	for range 2 {
		found := &cdiv1.DataSource{}
		if err := c.Get(ctx, at, found); apierrors.IsNotFound(err) {
			return nil, &Obstacle{Missing: true, Message: fmt.Sprintf("DataSource %s not found; it is followed once it exists", at)}
		} else if err != nil {
			return nil, fmt.Errorf("reading DataSource %s: %w", at, err)
		}
		own := Defaults(found.Labels)
		maps.Copy(own, labels) // the one that was named first knows best
		labels = own
		switch source := found.Spec.Source; {
		case source.PVC != nil:
			return &Source{Claim: key(source.PVC.Namespace, source.PVC.Name, found.Namespace), Labels: labels}, nil
		case source.Snapshot != nil:
			return &Source{Snapshot: key(source.Snapshot.Namespace, source.Snapshot.Name, found.Namespace), Labels: labels}, nil
		case source.DataSource != nil:
			at = key(source.DataSource.Namespace, source.DataSource.Name, found.Namespace)
		default:
			return nil, &Obstacle{Message: fmt.Sprintf("DataSource %s names nothing; let it name a PVC or a VolumeSnapshot", at)}
		}
	}
	return nil, &Obstacle{Final: true, Message: fmt.Sprintf("DataSource %s points to a DataSource that points to another; point it to a PVC or a VolumeSnapshot", ref.Name)}
}

// Defaults picks the labels that say which instance type and preference suit a disk.
func Defaults(labels map[string]string) map[string]string {
	picked := map[string]string{}
	for name, value := range labels {
		if strings.HasPrefix(name, labelDefaults) {
			picked[name] = value
		}
	}
	return picked
}
