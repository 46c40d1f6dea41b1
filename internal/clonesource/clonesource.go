// Package clonesource finds the claim that a DataVolume clones. Admission asks it to
// decide whether the DataVolume's creator may, and virt-controller to do it.
package clonesource

import (
	"context"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationAuthorized on a DataVolume names the claim in another namespace, as
// namespace/name, that its creator may clone. Only admission writes it: what a user writes
// there is removed, and it never changes afterwards.
const AnnotationAuthorized = names.Domain + "clone-authorized"

// labelDefaults begins the labels that say which instance type and preference suit a disk.
const labelDefaults = "instancetype.kubevirt.io/default-"

// Source is what a DataVolume clones.
type Source struct {
	// Claim is where the disk is.
	Claim types.NamespacedName
	// Labels say what instance type and preference suit it, as the DataSources on the way tell.
	Labels map[string]string
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

// Of returns what a DataVolume of namespace clones by its spec: the claim that it names, or
// the one that its DataSource names, over one further DataSource at the most. It returns nil
// for a DataVolume that clones no claim, and an *Obstacle where none was found.
func Of(ctx context.Context, c client.Reader, namespace string, spec *cdiv1.DataVolumeSpec) (*Source, error) {
	switch {
	case spec.SourceRef != nil && spec.SourceRef.Kind == cdiv1.DataVolumeDataSource:
		return follow(ctx, c, namespace, spec.SourceRef)
	case spec.Source != nil && spec.Source.PVC != nil:
		return &Source{Claim: claim(spec.Source.PVC, namespace)}, nil
	}
	return nil, nil
}

// claim is the claim that source names; without a namespace it is in that of what names it.
func claim(source *cdiv1.DataVolumeSourcePVC, namespace string) types.NamespacedName {
	if source.Namespace != "" {
		namespace = source.Namespace
	}
	return types.NamespacedName{Namespace: namespace, Name: source.Name}
}

func follow(ctx context.Context, c client.Reader, namespace string, ref *cdiv1.DataVolumeSourceRef) (*Source, error) {
	key := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	if ref.Namespace != nil && *ref.Namespace != "" {
		key.Namespace = *ref.Namespace
	}
	labels := map[string]string{}
	for range 2 {
		found := &cdiv1.DataSource{}
		if err := c.Get(ctx, key, found); apierrors.IsNotFound(err) {
			return nil, &Obstacle{Missing: true, Message: fmt.Sprintf("DataSource %s not found; it is followed once it exists", key)}
		} else if err != nil {
			return nil, fmt.Errorf("reading DataSource %s: %w", key, err)
		}
		own := Defaults(found.Labels)
		maps.Copy(own, labels) // the one that was named first knows best
		labels = own
		switch source := found.Spec.Source; {
		case source.PVC != nil:
			return &Source{Claim: claim(source.PVC, found.Namespace), Labels: labels}, nil
		case source.DataSource != nil:
			key = types.NamespacedName{Namespace: source.DataSource.Namespace, Name: source.DataSource.Name}
			if key.Namespace == "" {
				key.Namespace = found.Namespace
			}
		default:
			return nil, &Obstacle{Message: fmt.Sprintf("DataSource %s names no PVC; other sources are not supported yet", key)}
		}
	}
	return nil, &Obstacle{Final: true, Message: fmt.Sprintf("DataSource %s points to a DataSource that points to another; point it to a PVC", ref.Name)}
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
