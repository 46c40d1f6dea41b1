// Package admission is virt-api: it serves the webhooks that complete and check
// VirtualMachines, VirtualMachineInstances, their replica sets, pools, snapshots, restores, exports, clones, backups and requests for templates, and
// DataVolumes, with certificates that it makes itself. What is checked is in a package for each kind.
package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/admission/clone"
	"github.com/slipway-vm/slipway/controllers/admission/dataimportcron"
	"github.com/slipway-vm/slipway/controllers/admission/export"
	"github.com/slipway-vm/slipway/controllers/admission/objecttransfer"
	"github.com/slipway-vm/slipway/controllers/admission/pool"
	"github.com/slipway-vm/slipway/controllers/admission/replicaset"
	"github.com/slipway-vm/slipway/controllers/admission/restore"
	"github.com/slipway-vm/slipway/controllers/admission/snapshot"
	"github.com/slipway-vm/slipway/controllers/admission/storageprofile"
	"github.com/slipway-vm/slipway/controllers/admission/taskpod"
	"github.com/slipway-vm/slipway/controllers/admission/virtualmachine"
	"github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/admission/vmclone"
	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/supported"
)

// Handlers returns the webhooks by path: reader is where they look up what objects name, reviews where
// they ask for users' rights; namespace is Slipway's.
func Handlers(reader client.Reader, reviews clone.Reviewer, namespace string, now func() time.Time) map[string]admission.Handler {
	a := admitter{
		resolver: instancetype.Resolver{Reader: reader}, reader: reader, namespace: namespace,
		clones: clone.Judge{Reader: reader, Reviews: reviews, Controller: "system:serviceaccount:" + namespace + ":virt-controller"},
	}
	return map[string]admission.Handler{
		"/virtualmachines-mutate":                     admission.HandlerFunc(a.completeMachine),
		"/virtualmachines-validate":                   validator(a.virtualMachine),
		"/virtualmachineinstances-mutate":             a.completeInstance(now),
		"/virtualmachineinstances-validate":           validator(a.instance),
		"/virtualmachineinstancereplicasets-validate": validator(a.replicaSet),
		"/virtualmachinepools-validate":               validator(a.pool),
		"/datavolumes-mutate":                         admission.HandlerFunc(a.authorizeClone),
		"/datavolumes-validate":                       validator(a.dataVolume),
		"/virtualmachinesnapshots-validate":           validator(a.snapshot),
		"/virtualmachinerestores-validate":            validator(a.restore),
		"/virtualmachineexports-validate":             validator(a.export),
		"/virtualmachineclones-validate":              validator(a.vmClone),
		"/virtualmachinetemplaterequests-validate":    admission.HandlerFunc(a.allowedTemplate),
		"/virtualmachinebackups-validate":             validator(a.backup),
		"/virtualmachinebackuptrackers-validate":      validator(a.backupTracker),
		"/dataimportcrons-validate":                   admission.HandlerFunc(a.warnedCron),
		"/volumeimportsources-validate":               validator(importSource),
		"/volumeuploadsources-validate":               validator(uploadSource),
		"/volumeclonesources-validate":                validator(cloneSource),
		"/storageprofiles-validate":                   validator(a.storageProfile),
		"/objecttransfers-validate":                   validator(a.objectTransfer),
		"/persistentvolumeclaims-mutate":              admission.HandlerFunc(a.completeClaim),
		"/cdis-validate":                              validator(a.cdi),
		"/taskpods-mutate":                            taskpod.Handler(reader),
	}
}

// admitter checks objects, with what it must look up for that.
type admitter struct {
	resolver  instancetype.Resolver
	clones    clone.Judge
	reader    client.Reader
	namespace string
}

func (a admitter) virtualMachine(ctx context.Context, r *review[virtv1.VirtualMachine]) (field.ErrorList, error) {
	vm := r.object
	if errs := renaming(r); len(errs) > 0 || vm.DeletionTimestamp != nil {
		return errs, nil
	}
	vm.Namespace = r.request.Namespace
	errs := supported.Unsupported(supported.VirtualMachine, r.raw)
	if len(errs) > 0 {
		return errs, nil
	}
	var old *virtv1.VirtualMachineSpec
	if r.old != nil {
		old = &r.old.Spec
		if errs := snapshot.ValidateMachine(r.old, vm); len(errs) > 0 {
			return errs, nil
		}
		if errs, err := a.migration(ctx, r); err != nil || len(errs) > 0 {
			return errs, err
		}
	}
	return a.machine(ctx, vm, old, field.NewPath("spec"))
}

// renaming refuses a change of what a VM that is being renamed was copied from.
func renaming(r *review[virtv1.VirtualMachine]) field.ErrorList {
	if r.old == nil || equality.Semantic.DeepEqual(r.old.Spec, r.object.Spec) {
		return nil
	}
	target := rename.Target(r.old)
	if target == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf("the VirtualMachine is being renamed; change %s when that is done", target))}
}

// machine checks a VM whose spec is at path, with what it names. old is what the spec was, or nil: a VM that stays what it is, be it
// started or stopped, is not judged anew by what it names, which may have been deleted or changed since.
func (a admitter) machine(ctx context.Context, vm *virtv1.VirtualMachine, old *virtv1.VirtualMachineSpec, path *field.Path) (field.ErrorList, error) {
	if old != nil && virtualmachine.Same(old, &vm.Spec) {
		return virtualmachine.ValidateRun(vm, path), nil
	}
	errs := append(templateAnnotations(&vm.Spec, old, path), virtualmachine.ValidateMatchers(old, &vm.Spec, path)...)
	if len(errs) > 0 {
		return errs, nil
	}
	referred, errs, err := a.refer(ctx, vm, path)
	if err != nil || len(errs) > 0 {
		return errs, err
	}
	kv, err := a.kubevirt(ctx)
	if err != nil {
		return nil, err
	}
	referred.Cluster = defaults.Of(&kv.Spec.Configuration)
	if errs := virtualmachine.Validate(vm, referred, path); len(errs) > 0 {
		return errs, nil
	}
	if errs := gatedMachine(kv, &vm.Spec, old, path); len(errs) > 0 {
		return errs, nil
	}
	if old != nil && equality.Semantic.DeepEqual(old.DataVolumeTemplates, vm.Spec.DataVolumeTemplates) {
		return nil, nil
	}
	return a.clones.Templates(ctx, vm, path)
}

// completeInstance completes new VMIs, by what the KubeVirt object says then.
func (a admitter) completeInstance(now func() time.Time) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		kv, err := a.kubevirt(ctx)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		cluster := defaults.Of(&kv.Spec.Configuration)
		complete := func(vmi *virtv1.VirtualMachineInstance) { virtualmachineinstance.Default(vmi, cluster, now()) }
		return mutator(complete).Handle(ctx, request)
	})
}

func (a admitter) instance(ctx context.Context, r *review[virtv1.VirtualMachineInstance]) (field.ErrorList, error) {
	var errs field.ErrorList
	if !virtualmachineinstance.Own(a.namespace, r.request.UserInfo.Username) { // theirs come from templates that were admitted, perhaps long ago
		errs = instanceAnnotations(r.object, r.old)
	}
	if r.old != nil {
		return append(errs, virtualmachineinstance.ValidateUpdate(r.old, r.object, r.request.UserInfo, a.namespace)...), nil
	}
	errs = append(errs, supported.Unsupported(supported.VirtualMachineInstance, r.raw)...)
	errs = append(errs, virtualmachineinstance.Validate(&r.object.Spec, field.NewPath("spec"))...)
	kv, err := a.kubevirt(ctx)
	if err != nil {
		return nil, err
	}
	errs = append(errs, virtualmachineinstance.Allowed(&r.object.Spec, defaults.Of(&kv.Spec.Configuration), field.NewPath("spec"))...)
	return append(errs, gated(kv, &r.object.Spec, nil, field.NewPath("spec"))...), nil
}

func (a admitter) replicaSet(ctx context.Context, r *review[virtv1.VirtualMachineInstanceReplicaSet]) (field.ErrorList, error) {
	if r.object.DeletionTimestamp != nil {
		return nil, nil
	}
	kv, err := a.kubevirt(ctx)
	if err != nil {
		return nil, err
	}
	errs := append(supported.Unsupported(supported.ReplicaSet, r.raw), setAnnotations(r.object, r.old)...)
	errs = append(errs, replicaset.Validate(r.object, defaults.Of(&kv.Spec.Configuration))...)
	if len(errs) > 0 {
		return errs, nil
	}
	return gatedSet(kv, r.object, r.old), nil
}

func (a admitter) pool(ctx context.Context, r *review[poolv1.VirtualMachinePool]) (field.ErrorList, error) {
	if r.object.DeletionTimestamp != nil {
		return nil, nil
	}
	errs := append(supported.Unsupported(supported.Pool, r.raw), pool.Validate(r.object)...)
	if len(errs) > 0 {
		return errs, nil
	}
	var old *virtv1.VirtualMachineSpec
	if r.old != nil && r.old.Spec.VirtualMachineTemplate != nil {
		old = &r.old.Spec.VirtualMachineTemplate.Spec
	}
	vm := &virtv1.VirtualMachine{Spec: r.object.Spec.VirtualMachineTemplate.Spec}
	vm.Name, vm.Namespace = r.request.Name, r.request.Namespace
	return a.machine(ctx, vm, old, pool.TemplatePath())
}

func (a admitter) snapshot(_ context.Context, r *review[snapshotv1.VirtualMachineSnapshot]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return snapshot.ValidateUpdate(r.old, r.object), nil
	}
	return append(supported.Unsupported(supported.Snapshot, r.raw), snapshot.Validate(r.object)...), nil
}

func (a admitter) restore(ctx context.Context, r *review[snapshotv1.VirtualMachineRestore]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return restore.ValidateUpdate(r.old, r.object), nil
	}
	others := &snapshotv1.VirtualMachineRestoreList{}
	if err := a.resolver.List(ctx, others, client.InNamespace(r.request.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the VirtualMachineRestores of %s: %w", r.request.Namespace, err)
	}
	return append(supported.Unsupported(supported.Restore, r.raw), restore.Validate(r.object, others.Items)...), nil
}

func (a admitter) export(_ context.Context, r *review[exportv1.VirtualMachineExport]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return export.ValidateUpdate(r.old, r.object), nil
	}
	return append(supported.Unsupported(supported.Export, r.raw), export.Validate(r.object)...), nil
}

func (a admitter) vmClone(_ context.Context, r *review[clonev1.VirtualMachineClone]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return vmclone.ValidateUpdate(r.old, r.object), nil
	}
	return append(supported.Unsupported(supported.Clone, r.raw), vmclone.Validate(r.object)...), nil
}

func (a admitter) dataImportCron(_ context.Context, r *review[cdiv1.DataImportCron]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return dataimportcron.ValidateUpdate(r.old, r.object), nil
	}
	errs := supported.Unsupported(supported.DataImportCron, r.raw)
	return append(errs, dataimportcron.Validate(r.object)...), nil
}

// warnedCron validates a DataImportCron, and warns of one that may not clone what it names: it may later, when a RoleBinding comes
// that is created after it, and imports nothing before.
func (a admitter) warnedCron(ctx context.Context, request admission.Request) admission.Response {
	response := validator(a.dataImportCron).Handle(ctx, request)
	if !response.Allowed || request.Operation != admissionv1.Create {
		return response
	}
	r, err := decode[cdiv1.DataImportCron](&request)
	if err != nil {
		return undecodable(&request, err)
	}
	r.object.Namespace = request.Namespace
	message, err := a.clones.Cron(ctx, r.object)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case message != "":
		return response.WithWarnings("spec.serviceAccountName: nothing is imported for now: " + message)
	}
	return response
}

func (a admitter) storageProfile(_ context.Context, r *review[cdiv1.StorageProfile]) (field.ErrorList, error) {
	return storageprofile.Validate(&r.object.Spec, field.NewPath("spec")), nil
}

func (a admitter) objectTransfer(ctx context.Context, r *review[cdiv1.ObjectTransfer]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return objecttransfer.ValidateUpdate(r.old, r.object), nil
	}
	errs := append(supported.Unsupported(supported.ObjectTransfer, r.raw), objecttransfer.Validate(&r.object.Spec, field.NewPath("spec"))...)
	if len(errs) > 0 {
		return errs, nil
	}
	return objecttransfer.Free(ctx, a.reader, &r.object.Spec, field.NewPath("spec"))
}

func (a admitter) cdi(ctx context.Context, r *review[cdiv1.CDI]) (field.ErrorList, error) {
	errs := supported.Unsupported(supported.CDI, r.raw)
	errs = append(errs, cdiconfig.Validate(r.object.Spec.Config, field.NewPath("spec", "config"))...)
	errs = append(errs, cdiconfig.ValidateControlPlane(&r.object.Spec, field.NewPath("spec"))...)
	errs = append(errs, certs.ValidateCDI(r.object.Spec.CertConfig, field.NewPath("spec", "certConfig"))...)
	var before client.Object
	if r.old != nil {
		before = r.old
	}
	problem, err := cdiconfig.CheckRegistries(ctx, a.reader, a.namespace, r.object, before)
	if problem != nil && !errors.Is(problem, cdiconfig.ErrNoConfigMap) {
		path := field.NewPath("metadata", "annotations").Key(names.AnnotationRegistries)
		errs = append(errs, field.Invalid(path, r.object.Annotations[names.AnnotationRegistries], problem.Error()))
	}
	return errs, err
}
