// Package cdiconfig keeps the CDIConfig: its spec is the CDI object's, which the operator
// writes as the HyperConverged object says; its status is what holds, for our own
// controllers and for the field's clients.
package cdiconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/outside"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/upload"
)

// Reconciler keeps the CDIConfig.
type Reconciler struct {
	client.Client
	live      client.Reader // past the cache
	namespace string        // of the installation
}

// SetupWithManager adds the controller to mgr; namespace is the installation's, whose Ingresses mgr may watch.
func SetupWithManager(mgr ctrl.Manager, namespace string) error {
	r := &Reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), namespace: namespace}
	theOne := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: names.CDIConfigName}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("cdiconfig").
		Watches(&cdiv1.CDI{}, theOne).
		Watches(&cdiv1.CDIConfig{}, theOne).
		Watches(&storagev1.StorageClass{}, theOne).
		Watches(&networkingv1.Ingress{}, theOne).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the CDIConfig controller: %w", err)
	}
	return nil
}

// Installed returns the CDI object, nil when there is none: then nothing is installed, or it is
// being removed, and nothing is made that would stay behind.
func Installed(ctx context.Context, c client.Reader) (*cdiv1.CDI, error) {
	var all cdiv1.CDIList
	if err := c.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing CDI objects: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b cdiv1.CDI) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp == nil {
			return &all.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// Owners is whose objects go with the CDI object.
func Owners(cdi *cdiv1.CDI) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "CDI", Name: cdi.Name, UID: cdi.UID,
	}}
}

// Labels are those that the field's own objects bear.
func Labels() map[string]string {
	return map[string]string{"app": "containerized-data-importer", "cdi.kubevirt.io": ""}
}

// Reconcile makes the CDIConfig what it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cdi, err := Installed(ctx, r)
	if err != nil || cdi == nil {
		return ctrl.Result{}, err
	}
	var classes storagev1.StorageClassList
	if err := r.List(ctx, &classes); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing storage classes: %w", err)
	}
	slices.SortFunc(classes.Items, func(a, b storagev1.StorageClass) int { return strings.Compare(a.Name, b.Name) })
	there := &cdiv1.CDIConfig{}
	err = r.Get(ctx, req.NamespacedName, there)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading CDIConfig %s: %w", req.Name, err)
	}
	wanted := there.DeepCopy()
	complete(wanted, req.Name, cdi, classes.Items)
	if err := r.findProxy(ctx, wanted); err != nil {
		return ctrl.Result{}, err
	}
	if apierrors.IsNotFound(err) {
		if err := r.Create(ctx, wanted, client.FieldOwner(names.ManagerData)); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, fmt.Errorf("creating CDIConfig %s: %w", req.Name, err)
		}
		return ctrl.Result{}, nil
	}
	if equality.Semantic.DeepEqual(there, wanted) {
		return ctrl.Result{}, nil
	}
	log.FromContext(ctx).Info("Writing what holds for data volumes")
	// No apply: of a map of which nothing is applied any more, such as the overheads of classes, it would leave a null.
	patch := client.MergeFromWithOptions(there, client.MergeFromWithOptimisticLock{})
	err = r.Patch(ctx, wanted, patch, client.FieldOwner(names.ManagerData))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // it has changed, and its event brings the next pass
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("writing CDIConfig %s: %w", req.Name, err)
	}
	return ctrl.Result{}, nil
}

// findProxy has config's status name the host at which cdi-uploadproxy is published, where nobody says another.
func (r *Reconciler) findProxy(ctx context.Context, config *cdiv1.CDIConfig) error {
	if ptr.Deref(config.Spec.UploadProxyURLOverride, "") != "" {
		return nil
	}
	host, err := outside.ByIngress(ctx, r.Client, r.namespace, upload.ProxyName)
	if err == nil && host == "" {
		host, err = outside.ByRoute(ctx, r.live, r.namespace, upload.ProxyName)
	}
	if host != "" {
		config.Status.UploadProxyURL = &host
	}
	return err
}

// complete makes config what it should be.
func complete(config *cdiv1.CDIConfig, name string, cdi *cdiv1.CDI, classes []storagev1.StorageClass) {
	config.Name = name
	if config.Labels == nil {
		config.Labels = map[string]string{}
	}
	maps.Copy(config.Labels, Labels())
	config.OwnerReferences = Owners(cdi)
	config.Spec = cdiv1.CDIConfigSpec{}
	if cdi.Spec.Config != nil {
		config.Spec = *cdi.Spec.Config.DeepCopy()
		config.Spec.ImportProxy = shown(config.Spec.ImportProxy)
	}
	config.Status = Status(&config.Spec, classes)
}
