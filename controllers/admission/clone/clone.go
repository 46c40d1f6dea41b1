// Package clone decides who may clone a claim or snapshot of another namespace: whoever may create
// datavolumes/source (cdi.kubevirt.io) there, or pods, as in CDI. A VM clones with the
// rights of its namespace's ServiceAccount default, not with those of virt-controller.
package clone

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// Reader finds DataSources.
	Reader client.Reader
	// Reviews asks the API server what somebody may do.
	Reviews Reviewer
	// Controller is the user name of virt-controller, which makes the DataVolumes of VMs.
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
			return j.mayAccount(ctx, source, namespace)
		}
		ask := cdiv1.CanUserClonePVC
		if source.InSnapshot() {
			ask = cdiv1.CanUserCloneSnapshot
		}
		return ask(j.review(ctx), source.Key().Namespace, source.Key().Name, namespace, user)
	})
}

// Templates returns what is wrong with the clones that the dataVolumeTemplates of vm, whose spec is at path, ask for.
func (j Judge) Templates(ctx context.Context, vm *virtv1.VirtualMachine, path *field.Path) (field.ErrorList, error) {
	var errs field.ErrorList
	for i := range vm.Spec.DataVolumeTemplates {
		template := &vm.Spec.DataVolumeTemplates[i]
		_, err := j.check(ctx, &template.Spec, vm.Namespace, func(source *clonesource.Source) (bool, string, error) {
			return j.mayAccount(ctx, source, vm.Namespace)
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

// mayAccount asks whether the account with whose rights the VMs of namespace clone may clone source.
func (j Judge) mayAccount(ctx context.Context, source *clonesource.Source, namespace string) (bool, string, error) {
	ask := cdiv1.CanServiceAccountClonePVC
	if source.InSnapshot() {
		ask = cdiv1.CanServiceAccountCloneSnapshot
	}
	return ask(j.review(ctx), source.Key().Namespace, source.Key().Name, namespace, vmAccount)
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
		return nil, &refusal{reason + advice(source)}
	}
	return source, nil
}

func advice(source *clonesource.Source) string {
	return fmt.Sprintf("; whoever runs namespace %s can allow it with a RoleBinding to a role that may create datavolumes/source of cdi.kubevirt.io there",
		source.Key().Namespace)
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
