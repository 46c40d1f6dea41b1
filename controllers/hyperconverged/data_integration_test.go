//go:build integration

package hyperconverged

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/controllers/cached"
	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/dataimportcron"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/controllers/populator"
	"github.com/slipway-vm/slipway/controllers/storageprofile"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestVirtControllerMayKeepWhatHoldsForData runs the controllers of CDIConfig, StorageProfiles and
// DataImportCrons, and of the populators of claims, with the rights of virt-controller's role, and asks as others what they may not.
func TestVirtControllerMayKeepWhatHoldsForData(t *testing.T) {
	config := apiserver.Start(t, "components/crds")
	c := apiserver.Player(t, config)
	options := testOptions()
	create := func(objects ...client.Object) {
		t.Helper()
		for _, object := range objects {
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: options.Namespace}})
	for _, component := range []string{"virt-controller", "rbac"} {
		objects, err := render.Folder(components.Files(), component, options.Values())
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if object.GetKind() == "Deployment" {
				continue
			}
			if err := apply.Object(t.Context(), c, object, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, config, "system:serviceaccount:"+options.Namespace+":virt-controller")
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}, Spec: cdiv1.CDISpec{Config: &cdiv1.CDIConfigSpec{Preallocation: new(true)}}}
	create(cdi, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Provisioner: names.HostPathDriver})

	jane := asUser(t, config, "jane")
	made := &cdiv1.CDIConfig{}
	until(t, "everyone reads the CDIConfig", func() bool {
		return jane.Get(t.Context(), client.ObjectKey{Name: names.CDIConfigName}, made) == nil && made.Status.Preallocation
	})
	cdi.Spec.Config.Preallocation = nil
	if err := c.Update(t.Context(), cdi); err != nil {
		t.Fatal(err)
	}
	until(t, "the CDIConfig follows", func() bool {
		return jane.Get(t.Context(), client.ObjectKey{Name: names.CDIConfigName}, made) == nil && !made.Status.Preallocation
	})
	create(&networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: "uploads"},
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "cdi-uploadproxy", Port: networkingv1.ServiceBackendPort{Number: 443}}},
			Rules:          []networkingv1.IngressRule{{Host: "uploads.example.com"}},
		},
	})
	until(t, "the CDIConfig names where uploads go", func() bool {
		return jane.Get(t.Context(), client.ObjectKey{Name: names.CDIConfigName}, made) == nil && ptr.Deref(made.Status.UploadProxyURL, "") == "uploads.example.com"
	})
	until(t, "everyone reads the StorageProfile", func() bool {
		profile := &cdiv1.StorageProfile{}
		return jane.Get(t.Context(), client.ObjectKey{Name: "node"}, profile) == nil && len(profile.Status.ClaimPropertySets) > 0
	})
	until(t, "the CDIConfig is not changed by hand", func() bool {
		err := c.Patch(t.Context(), made, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"preallocation":true}}`)))
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "CDIConfig config follows the CDI object")
	})
	if err := c.Patch(t.Context(), made, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
		t.Errorf("a label on the CDIConfig: %v", err)
	}
	importsByHand(t, c)
	fillsAClaim(t, c)
}

// fillsAClaim has virt-controller fill a claim, and give it the volume; the DataVolume's controller and the
// storage are played.
func fillsAClaim(t *testing.T, c client.Client) {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("filled"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("node"),
		Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: cdiv1.VolumeImportSourceRef, Name: "empty"},
	}}
	source := &cdiv1.VolumeImportSource{ObjectMeta: meta("empty"), Spec: cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{Blank: &cdiv1.DataVolumeBlankImage{}}}}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.HostPathDriver}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range []client.Object{driver, source, claim} {
		must(c.Create(t.Context(), object))
	}
	dv := &cdiv1.DataVolume{}
	until(t, "there is a DataVolume for the claim", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: population.PrimeName(claim)}, dv) == nil
	})
	other := &corev1.PersistentVolumeClaim{ObjectMeta: meta(dv.Name), Spec: *dv.Spec.PVC}
	other.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	other.Spec.VolumeName = "filled"
	must(c.Create(t.Context(), other))
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "filled"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: other.Spec.AccessModes, StorageClassName: "node", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: other.Name, UID: other.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: names.HostPathDriver, VolumeHandle: "filled"}},
	}}
	must(c.Create(t.Context(), volume))
	dv.Status.Phase = cdiv1.Succeeded
	must(c.Status().Update(t.Context(), dv))
	until(t, "the volume is the claim's", func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(volume), volume) == nil && volume.Spec.ClaimRef.UID == claim.UID
	})
	must(c.Delete(t.Context(), claim)) // protected by Kubernetes, which is not there
	until(t, "what was made for the claim goes with it", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
	})
}

// importsByHand has virt-controller import what the annotation of a DataImportCron names.
func importsByHand(t *testing.T, c client.Client) {
	t.Helper()
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cron", Annotations: map[string]string{dataimportcron.AnnotationDesired: digest}},
		Spec: cdiv1.DataImportCronSpec{ManagedDataSource: "golden", Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://127.0.0.1/disk", CertConfigMap: "none"}},
			Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}},
		}}},
	}
	polled := cron.DeepCopy()
	polled.Name, polled.Annotations, polled.Spec.Schedule, polled.Spec.ManagedDataSource = "polled", nil, "@daily", "other"
	for _, object := range []client.Object{cron, polled} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the DataVolume and the DataSource are there", func() bool {
		dv := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "golden-0123456789ab"}, &cdiv1.DataVolume{})
		source := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "golden"}, &cdiv1.DataSource{})
		return dv == nil && source == nil
	})
	until(t, "a poll tells what is missing", func() bool {
		if c.Get(t.Context(), client.ObjectKeyFromObject(polled), polled) != nil {
			return false
		}
		for _, condition := range polled.Status.Conditions {
			if condition.Reason == "NoDigest" {
				return strings.Contains(condition.Message, "ConfigMap none, which certConfigMap names, does not exist")
			}
		}
		return false
	})
}

// run runs the controllers as user.
func run(t *testing.T, config *rest.Config, user string) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)}, Cache: cached.Options(testOptions().Namespace),
	})
	if err != nil {
		t.Fatal(err)
	}
	crons := func(mgr ctrl.Manager) error {
		return dataimportcron.SetupWithManager(mgr, testOptions().Namespace, testOptions().SlipwayImage)
	}
	configs := func(mgr ctrl.Manager) error { return cdiconfig.SetupWithManager(mgr, testOptions().Namespace) }
	for _, setup := range []func(ctrl.Manager) error{configs, storageprofile.SetupWithManager, crons, populator.SetupWithManager} {
		if err := setup(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// asUser asks as one who is logged in.
func asUser(t *testing.T, config *rest.Config, name string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// until waits for what must come soon.
func until(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !check() {
		select {
		case <-deadline:
			t.Fatalf("it did not happen that %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
