package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
)

// ensureDataSource keeps the DataSource on the last import that is whole. One that was there
// before, and bears no DataImportCron's label, is its owner's to lead.
func (r *Reconciler) ensureDataSource(ctx context.Context, s *scope) error {
	if s.source != nil && s.source.Labels[LabelCron] == "" {
		return nil
	}
	wanted := newDataSource(s)
	if s.source != nil && (s.source.DeletionTimestamp != nil || leads(s.source, wanted)) {
		return nil // the end of one brings the next pass
	}
	log.FromContext(ctx).Info("Writing the DataSource", "DataSource", wanted.Name, "import", s.last, "format", s.lastFormat)
	s.moved = true
	if err := r.writeDataSource(ctx, s.source, wanted); err != nil {
		return err
	}
	others := beside(s.source, wanted)
	if others == "" {
		return nil
	}
	if err := r.Patch(ctx, wanted, client.RawPatch(types.MergePatchType, []byte(others)), client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("removing from DataSource %s what it named before: %w", wanted.Name, err)
	}
	return nil
}

// writeDataSource makes of there what is wanted, or makes it where there is none. It answers Conflict when the cache does not
// show it as it is: it may be somebody's by now, who leads it himself.
func (r *Reconciler) writeDataSource(ctx context.Context, there, wanted *cdiv1.DataSource) error {
	if there != nil {
		meta := map[string]any{"labels": wanted.Labels, "ownerReferences": wanted.OwnerReferences, "resourceVersion": there.ResourceVersion}
		err := apply.Fields(ctx, r.Client, there, manager, map[string]any{"metadata": meta, "spec": wanted.Spec})
		if err != nil {
			return fmt.Errorf("writing DataSource %s: %w", wanted.Name, err)
		}
		return nil
	}
	live, err := get(ctx, r.live, client.ObjectKeyFromObject(wanted), &cdiv1.DataSource{})
	switch {
	case err != nil:
		return err
	case live != nil:
		kind := schema.GroupResource{Group: cdiv1.SchemeGroupVersion.Group, Resource: "datasources"}
		return fmt.Errorf("making a DataSource: %w", apierrors.NewConflict(kind, wanted.Name, errors.New("it was made just now")))
	}
	if err := apply.Object(ctx, r.Client, wanted, manager); err != nil {
		return fmt.Errorf("writing DataSource %s: %w", wanted.Name, err)
	}
	return nil
}

// newDataSource returns the DataSource that names the last import. As long as there is none it names what it did before.
func newDataSource(s *scope) *cdiv1.DataSource {
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.cron.Namespace, Name: s.cron.Spec.ManagedDataSource,
			Labels: defaults(s), OwnerReferences: owners(s.cron),
		},
	}
	switch {
	case s.last == nil && s.source != nil:
		source.Spec = *s.source.Spec.DeepCopy()
	case s.last == nil:
	case s.lastFormat == cdiv1.DataImportCronSourceFormatSnapshot:
		source.Spec.Source.Snapshot = &cdiv1.DataVolumeSourceSnapshot{Namespace: s.last.Namespace, Name: s.last.Name}
	default:
		source.Spec.Source.PVC = s.last.DeepCopy()
	}
	maps.Copy(source.Labels, map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage"})
	maps.Copy(source.Labels, labels(s.cron))
	return source
}

// defaults are the labels that say what instance type and preference suit the image: the DataImportCron's, and those
// that a snapshot has from its image. Those of claims are read from the claims.
func defaults(s *scope) map[string]string {
	all := map[string]string{}
	switch {
	case s.lastFormat != cdiv1.DataImportCronSourceFormatSnapshot:
	case s.snapshotted():
		all = clonesource.Defaults(s.snapshot.Labels)
	case s.source != nil:
		all = clonesource.Defaults(s.source.Labels)
	}
	maps.Copy(all, clonesource.Defaults(s.cron.Labels))
	return all
}

// beside is a merge patch that removes from there what it names beside wanted, whoever wrote that; empty when it is nothing.
func beside(there, wanted *cdiv1.DataSource) string {
	if there == nil {
		return ""
	}
	var fields []string
	for name, isBeside := range map[string]bool{
		"pvc":        there.Spec.Source.PVC != nil && wanted.Spec.Source.PVC == nil,
		"snapshot":   there.Spec.Source.Snapshot != nil && wanted.Spec.Source.Snapshot == nil,
		"dataSource": there.Spec.Source.DataSource != nil && wanted.Spec.Source.DataSource == nil,
	} {
		if isBeside {
			fields = append(fields, `"`+name+`":null`)
		}
	}
	if len(fields) == 0 {
		return ""
	}
	return `{"spec":{"source":{` + strings.Join(fields, ",") + `}}}`
}

// leads reports whether there says what wanted does.
func leads(there, wanted *cdiv1.DataSource) bool {
	for name, value := range wanted.Labels {
		if there.Labels[name] != value {
			return false
		}
	}
	for _, owner := range wanted.OwnerReferences {
		if !hasOwner(there, owner) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(there.Spec.Source, wanted.Spec.Source)
}

func hasOwner(there *cdiv1.DataSource, owner metav1.OwnerReference) bool {
	for _, has := range there.OwnerReferences {
		if has.UID == owner.UID {
			return true
		}
	}
	return false
}
