// Package clone decides who may clone a claim or snapshot of another namespace: whoever may create
// datavolumes/source (cdi.kubevirt.io) there, or pods, as in CDI. A VM clones with the
// rights of its namespace's ServiceAccount default, a DataImportCron with those of the one that it names, a VirtualMachineTemplateRequest
// with those that its creator has when he makes it, none with those of virt-controller, which makes their DataVolumes.
package clone

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/dataimportcron"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/objecttransfer"
	"github.com/slipway-vm/slipway/internal/clonesource"
)

// vmAccount is the ServiceAccount with whose rights a VM clones its disks.
const vmAccount = "default"

// Reviewer creates SubjectAccessReviews.
type Reviewer interface {
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
}

// Judge decides.
type Judge struct {
	// Reader finds DataSources and DataImportCrons.
	Reader client.Reader
	// Reviews asks the API server what somebody may do.
	Reviews Reviewer
	// Controller is the user name of virt-controller, which makes the DataVolumes of VMs and DataImportCrons.
	Controller string
}

// refusal says that somebody may not clone; it is the user's error.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// Refused returns why err refuses a clone, or "" for an error of another kind.
func Refused(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.message
	}
	return ""
}

// Authorize checks whether user may have dv in namespace clone what it names, and marks dv
// with what it may clone when that is in another namespace. A mark that is there already is removed.
func (j Judge) Authorize(ctx context.Context, dv *cdiv1.DataVolume, namespace string, user authenticationv1.UserInfo) error {
	delete(dv.Annotations, clonesource.AnnotationAuthorized)
	if user.Username == j.Controller && dv.Annotations[objecttransfer.AnnotationName] != "" {
		return nil // it has its disk already, and without the mark it can clone nothing of another namespace
	}
	source, err := j.ask(ctx, dv, namespace, user)
	if obstacle, ok := errors.AsType[*clonesource.Obstacle](err); ok {
		err = waits(&dv.Spec, namespace, obstacle)
	}
	if hasDisk(dv) && Refused(err) != "" {
		return nil // likewise
	}
	if err != nil || source == nil {
		return err
	}
	if dv.Annotations == nil {
		dv.Annotations = map[string]string{}
	}
	dv.Annotations[clonesource.AnnotationAuthorized] = source.Mark()
	return nil
}

// hasDisk reports whether dv says that its disk is there: on a claim that a backup brings, or on a volume.
func hasDisk(dv *cdiv1.DataVolume) bool {
	_, restored := dv.Annotations[datavolume.AnnotationPrePopulated]
	_, static := dv.Annotations[datavolume.AnnotationStatic]
	return restored || static
}

// ask returns what dv clones of another namespace, where user may have it cloned.
func (j Judge) ask(ctx context.Context, dv *cdiv1.DataVolume, namespace string, user authenticationv1.UserInfo) (*clonesource.Source, error) {
	return j.check(ctx, &dv.Spec, namespace, func(source *clonesource.Source) (bool, string, error) {
		if user.Username == j.Controller {
			if asked, err := j.forTemplate(ctx, dv, namespace, source); err != nil || asked {
				return asked, "", err
			}
			account, err := j.accountOf(ctx, dv, namespace, source)
			if err != nil {
				return false, "", err
			}
			return j.mayAccount(ctx, source, namespace, account)
		}
		ask := cdiv1.CanUserClonePVC
		if source.InSnapshot() {
			ask = cdiv1.CanUserCloneSnapshot
		}
		return ask(j.review(ctx), source.Key().Namespace, source.Key().Name, namespace, user)
	})
}

// accountOf is the ServiceAccount of namespace with whose rights virt-controller's dv clones source. It is that of the DataImportCron
// which dv is labelled of, where that imports just this claim and dv is no VM's and no claim's: those have the labels that
// users like.
func (j Judge) accountOf(ctx context.Context, dv *cdiv1.DataVolume, namespace string, source *clonesource.Source) (string, error) {
	name := dv.Labels[dataimportcron.LabelCron]
	if name == "" || dv.Labels[virtv1.CreatedByLabel] != "" || metav1.GetControllerOf(dv) != nil {
		return vmAccount, nil
	}
	cron := &cdiv1.DataImportCron{}
	if err := j.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cron); apierrors.IsNotFound(err) {
		return vmAccount, nil
	} else if err != nil {
		return "", fmt.Errorf("reading DataImportCron %s/%s: %w", namespace, name, err)
	}
	if from := dataimportcron.Foreign(cron); from == nil || from.Mark() != source.Mark() {
		return vmAccount, nil
	}
	return dataimportcron.Account(cron), nil
}

// Cron returns why nothing is imported by a DataImportCron, "" where its account may clone what it names.
func (j Judge) Cron(ctx context.Context, cron *cdiv1.DataImportCron) (string, error) {
	source := dataimportcron.Foreign(cron)
	if source == nil {
		return "", nil
	}
	allowed, reason, err := j.mayAccount(ctx, source, cron.Namespace, dataimportcron.Account(cron))
	if err != nil {
		return "", fmt.Errorf("asking who may clone %s: %w", source, err)
	}
	if allowed {
		return "", nil
	}
	return reason + "; " + source.Allowing(), nil
}

// Templates returns what is wrong with the clones that the dataVolumeTemplates of vm, whose spec is at path, ask for.
func (j Judge) Templates(ctx context.Context, vm *virtv1.VirtualMachine, path *field.Path) (field.ErrorList, error) {
	var errs field.ErrorList
	for i := range vm.Spec.DataVolumeTemplates {
		template := &vm.Spec.DataVolumeTemplates[i]
		_, err := j.check(ctx, &template.Spec, vm.Namespace, func(source *clonesource.Source) (bool, string, error) {
			return j.mayAccount(ctx, source, vm.Namespace, vmAccount)
		})
		if _, ok := errors.AsType[*clonesource.Obstacle](err); ok {
			continue // asked again when the DataVolume is created
		}
		if message := Refused(err); message != "" {
			errs = append(errs, field.Forbidden(path.Child("dataVolumeTemplates").Index(i), "Authorization failed, message is: "+message))
		} else if err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// mayAccount asks whether a ServiceAccount of namespace may clone source.
func (j Judge) mayAccount(ctx context.Context, source *clonesource.Source, namespace, account string) (bool, string, error) {
	ask := cdiv1.CanServiceAccountClonePVC
	if source.InSnapshot() {
		ask = cdiv1.CanServiceAccountCloneSnapshot
	}
	return ask(j.review(ctx), source.Key().Namespace, source.Key().Name, namespace, account)
}

// waits refuses a DataVolume whose source is not there when that is in another namespace, where
// only what is there can be allowed. In its own namespace it may come later.
func waits(spec *cdiv1.DataVolumeSpec, namespace string, obstacle *clonesource.Obstacle) error {
	if ref := spec.SourceRef; ref.Namespace != nil && *ref.Namespace != "" && *ref.Namespace != namespace {
		return &refusal{obstacle.Message + "; a DataSource of another namespace must be there before a DataVolume names it"}
	}
	return nil
}

// check returns what spec clones of another namespace and that allowed allows; nil when it
// clones none. An *clonesource.Obstacle says that the source is not there.
func (j Judge) check(ctx context.Context, spec *cdiv1.DataVolumeSpec, namespace string, allowed func(*clonesource.Source) (bool, string, error)) (*clonesource.Source, error) {
	source, err := clonesource.Of(ctx, j.Reader, namespace, spec)
	if err != nil {
		return nil, fmt.Errorf("finding what is to be cloned: %w", err)
	}
	if source == nil || source.Key().Namespace == namespace {
		return nil, nil
	}
	ok, reason, err := allowed(source)
	if err != nil {
		return nil, fmt.Errorf("asking who may clone %s: %w", source, err)
	}
	if !ok {
		return nil, &refusal{reason + "; " + source.Allowing()}
	}
	return source, nil
}

// review asks the API server.
func (j Judge) review(ctx context.Context) func(*authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	return func(review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		if err := j.Reviews.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("creating a SubjectAccessReview: %w", err)
		}
		return review, nil
	}
}
