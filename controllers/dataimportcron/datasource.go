package dataimportcron

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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
	wanted := newDataSource(s.cron, s.last)
	if s.source != nil && s.source.DeletionTimestamp == nil && leads(s.source, wanted) {
		return nil
	}
	log.FromContext(ctx).Info("Writing the DataSource", "DataSource", wanted.Name, "claim", s.last)
	if err := apply.Object(ctx, r.Client, wanted, manager); err != nil {
		return fmt.Errorf("writing DataSource %s: %w", wanted.Name, err)
	}
	return nil
}

func newDataSource(cron *cdiv1.DataImportCron, claim *cdiv1.DataVolumeSourcePVC) *cdiv1.DataSource {
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cron.Namespace, Name: cron.Spec.ManagedDataSource,
			Labels: clonesource.Defaults(cron.Labels), OwnerReferences: owners(cron),
		},
		Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: claim.DeepCopy()}},
	}
	maps.Copy(source.Labels, map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage"})
	maps.Copy(source.Labels, labels(cron))
	return source
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
	return equality.Semantic.DeepEqual(there.Spec.Source.PVC, wanted.Spec.Source.PVC)
}

func hasOwner(there *cdiv1.DataSource, owner metav1.OwnerReference) bool {
	for _, has := range there.OwnerReferences {
		if has.UID == owner.UID {
			return true
		}
	}
	return false
}
