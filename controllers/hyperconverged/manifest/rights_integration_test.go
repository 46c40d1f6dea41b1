//go:build integration

package manifest

import (
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog"
	"github.com/slipway-vm/slipway/controllers/hyperconverged"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestTheOperatorMayDeployBootSources asks with the rights that the manifest gives the operator: it
// makes the namespace of the common boot images, no other, gives everyone the rights there, and
// DataImportCrons. What everyone may then do there is asked as somebody who has nothing else.
func TestTheOperatorMayDeployBootSources(t *testing.T) {
	config := apiserver.Start(t, "../components/crds")
	admin, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	settings := options()
	settings.BootSources = catalog.BootSources()
	installed, err := Objects(settings)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range installed {
		switch object.GetKind() {
		case "Namespace", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			if err := apply.Object(t.Context(), admin, object, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	operator := as(t, config, "system:serviceaccount:vms:virt-operator")
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.LabelManagedBy: names.ManagedBy}}}
	}
	eventually(t, "making the namespace", func() error {
		return apply.Object(t.Context(), operator, namespace("kubevirt-os-images"), names.ManagerOperator)
	})
	if err := apply.Object(t.Context(), operator, namespace("another"), names.ManagerOperator); !apierrors.IsForbidden(err) {
		t.Errorf("the operator makes any namespace: %v", err)
	}
	planned, err := hyperconverged.Planned(settings)
	if err != nil {
		t.Fatal(err)
	}
	crons := 0
	for _, object := range planned {
		if object.GetNamespace() != "kubevirt-os-images" {
			continue
		}
		eventually(t, "making "+object.GetKind()+" "+object.GetName(), func() error {
			return apply.Object(t.Context(), operator, object, names.ManagerOperator)
		})
		if object.GetKind() == "DataImportCron" {
			crons++
		}
	}
	if crons == 0 {
		t.Error("there is no boot source")
	}
	everyoneMay(t, config)
}

// everyoneMay asks what somebody without any role may do with boot images.
func everyoneMay(t *testing.T, config *rest.Config) {
	t.Helper()
	jane := as(t, config, "jane", "system:authenticated")
	cron := &metav1.PartialObjectMetadata{}
	cron.SetGroupVersionKind(cdiv1.SchemeGroupVersion.WithKind("DataImportCron"))
	cron.SetNamespace("kubevirt-os-images")
	cron.SetName("fedora-image-cron")
	eventually(t, "seeing a boot source", func() error { return jane.Get(t.Context(), client.ObjectKeyFromObject(cron), cron) })
	for _, kind := range []string{"DataSource", "DataVolume"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(cdiv1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := jane.List(t.Context(), list, client.InNamespace("kubevirt-os-images")); err != nil {
			t.Error(err)
		}
		if err := jane.List(t.Context(), list, client.InNamespace("vms")); !apierrors.IsForbidden(err) {
			t.Errorf("she sees every %s elsewhere: %v", kind, err)
		}
	}
	if err := jane.Delete(t.Context(), cron); !apierrors.IsForbidden(err) {
		t.Errorf("she deletes boot sources: %v", err)
	}
	clone := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: "kubevirt-os-images", Verb: "create", Group: cdiv1.SchemeGroupVersion.Group, Resource: "datavolumes", Subresource: "source",
	}}}
	eventually(t, "cloning a boot source", func() error {
		if err := jane.Create(t.Context(), clone); err != nil {
			return err
		}
		if !clone.Status.Allowed {
			return fmt.Errorf("she may not: %s", clone.Status.Reason)
		}
		return nil
	})
}

// as returns a client of somebody.
func as(t *testing.T, config *rest.Config, user string, groups ...string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until rights that were just given are known.
func eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for err := do(); err != nil; err = do() {
		select {
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
