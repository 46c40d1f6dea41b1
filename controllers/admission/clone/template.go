package clone

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/clonesource"
)

// Template returns why user may not have request, which is new, "" where he may: he must be allowed to have templates and disks in its
// namespace, and to make them of its VM. virt-controller, which makes them, may do all of that.
func (j Judge) Template(ctx context.Context, request *vmtemplatev1beta1.VirtualMachineTemplateRequest, user authenticationv1.UserInfo) (string, error) {
	vm := request.Spec.VirtualMachineRef
	allowed, err := j.maySource(ctx, vm, request.Namespace, user)
	if err != nil {
		return "", err
	}
	if !allowed {
		return fmt.Sprintf("User is not allowed to use VirtualMachine %s/%s as a source for VirtualMachineTemplateRequests; whoever runs namespace %s can allow it "+
			"with a RoleBinding to a role that may create virtualmachinetemplaterequests/source of template.kubevirt.io there", vm.Namespace, vm.Name, vm.Namespace), nil
	}
	for _, made := range []struct{ group, resource, kind string }{
		{cdiv1.SchemeGroupVersion.Group, "datavolumes", "DataVolumes"},
		{vmtemplatev1beta1.GroupVersion.Group, "virtualmachinetemplates", "VirtualMachineTemplates"},
	} {
		allowed, err := j.may(ctx, user, authorizationv1.ResourceAttributes{Namespace: request.Namespace, Verb: "create", Group: made.group, Resource: made.resource})
		if err != nil {
			return "", err
		}
		if !allowed {
			return fmt.Sprintf("User is not allowed to create %s in namespace %s", made.kind, request.Namespace), nil
		}
	}
	return "", nil
}

// maySource asks whether user may make templates of vm in namespace: by the field's right to, or as one who may read the VM and
// clone disks from its namespace.
func (j Judge) maySource(ctx context.Context, vm vmtemplatev1beta1.VirtualMachineReference, namespace string, user authenticationv1.UserInfo) (bool, error) {
	allowed, err := j.may(ctx, user, authorizationv1.ResourceAttributes{
		Namespace: vm.Namespace, Name: vm.Name, Verb: "create",
		Group: vmtemplatev1beta1.GroupVersion.Group, Resource: "virtualmachinetemplaterequests", Subresource: "source",
	})
	if err != nil || allowed {
		return allowed, err
	}
	allowed, err = j.may(ctx, user, authorizationv1.ResourceAttributes{
		Namespace: vm.Namespace, Name: vm.Name, Verb: "get", Group: virtv1.GroupVersion.Group, Resource: "virtualmachines",
	})
	if err != nil || !allowed {
		return false, err
	}
	const anyOfThem = "" // the snapshots are yet to be taken
	allowed, _, err = cdiv1.CanUserCloneSnapshot(j.review(ctx), vm.Namespace, anyOfThem, namespace, user)
	if err != nil {
		return false, fmt.Errorf("asking who may clone disks of namespace %s: %w", vm.Namespace, err)
	}
	return allowed, nil
}

// may asks whether user may do something.
func (j Judge) may(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := j.review(ctx)(&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra, ResourceAttributes: &what,
	}})
	if err != nil {
		return false, fmt.Errorf("asking who may %s %s of namespace %s: %w", what.Verb, what.Resource, what.Namespace, err)
	}
	return answer.Status.Allowed, nil
}

// forTemplate says whether virt-controller's dv copies a disk of the VM of the request whose it is: then the request's creator was asked already.
func (j Judge) forTemplate(ctx context.Context, dv *cdiv1.DataVolume, namespace string, source *clonesource.Source) (bool, error) {
	owner := metav1.GetControllerOf(dv)
	if owner == nil || owner.Kind != vmtemplatev1beta1.KindRequest || owner.APIVersion != vmtemplatev1beta1.GroupVersion.String() {
		return false, nil
	}
	request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{}
	err := j.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name}, request)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading VirtualMachineTemplateRequest %s/%s: %w", namespace, owner.Name, err)
	}
	return err == nil && request.UID == owner.UID && source.InSnapshot() && source.Snapshot.Namespace == request.Spec.VirtualMachineRef.Namespace, nil
}
