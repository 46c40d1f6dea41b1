package dataimportcron

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/clonesource"
)

const (
	// defaultAccount is the ServiceAccount of a DataImportCron that names none.
	defaultAccount = "default"
	// rightsRetry is how often it is asked again whether a claim may be cloned that may not: no event comes with a right.
	rightsRetry = time.Minute
)

// Account is the ServiceAccount, of the DataImportCron's namespace, with whose rights claims of other namespaces are cloned.
func Account(cron *cdiv1.DataImportCron) string {
	return ptr.Deref(cron.Spec.ServiceAccountName, defaultAccount)
}

// Foreign is the claim of another namespace that a DataImportCron imports, nil for one that imports none.
func Foreign(cron *cdiv1.DataImportCron) *clonesource.Source {
	source := cron.Spec.Template.Spec.Source
	if source == nil || source.PVC == nil {
		return nil
	}
	from := clonesource.Named(cron.Namespace, source)
	if from.Key().Namespace == cron.Namespace {
		return nil
	}
	return from
}

// authorize asks whether the DataImportCron's account may clone what is imported of another namespace, and notes it when it may
// not. Nothing is told of a claim there, not even whether it exists, before it may.
func (r *Reconciler) authorize(ctx context.Context, s *scope) (bool, error) {
	source := Foreign(s.cron)
	if source == nil {
		return true, nil
	}
	ask := func(review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		if err := r.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("creating a SubjectAccessReview: %w", err)
		}
		return review, nil
	}
	allowed, reason, err := cdiv1.CanServiceAccountClonePVC(ask, source.Key().Namespace, source.Key().Name, s.cron.Namespace, Account(s.cron))
	if err != nil {
		return false, fmt.Errorf("asking who may clone %s: %w", source, err)
	}
	if !allowed {
		s.unauthorized = fmt.Sprintf("Not authorized to create DataVolume: %s; %s", reason, source.Allowing())
		s.sooner(rightsRetry)
	}
	return allowed, nil
}
