//go:build integration

package storageprofile_test

import (
	"context"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/storageprofile"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// world is an API server with the controllers of profiles and of the CDIConfig.
type world struct {
	client.Client
	t *testing.T
}

func start(t *testing.T) *world {
	t.Helper()
	config := apiserver.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)},
	})
	w := &world{t: t}
	w.must(err)
	w.must(storageprofile.SetupWithManager(mgr))
	w.must(storageprofile.SetupSnapshotClasses(mgr))
	w.must(cdiconfig.SetupWithManager(mgr, "slipway"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.Client = apiserver.Player(t, config)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for what must come soon; check returns what there is while it has not.
func (w *world) until(what string, check func() (string, bool)) {
	w.t.Helper()
	deadline := time.After(5 * time.Minute)
	for {
		there, ok := check()
		if ok {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("it did not happen that %s; there is %s", what, there)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// profile waits until a class's profile is as wanted.
func (w *world) profile(what, class string, wanted func(*cdiv1.StorageProfile) bool) *cdiv1.StorageProfile {
	w.t.Helper()
	profile := &cdiv1.StorageProfile{}
	w.until(what, func() (string, bool) {
		*profile = cdiv1.StorageProfile{}
		if err := w.Get(w.t.Context(), client.ObjectKey{Name: class}, profile); err != nil {
			return err.Error(), false
		}
		text, err := marshalled(profile)
		return text + errText(err), wanted(profile)
	})
	return profile
}

// marshalled is an object for people to read.
func marshalled(object any) (string, error) {
	data, err := yaml.Marshal(object)
	return string(data), err
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProfilesFollowClassesSpecsAndSnapshots(t *testing.T) {
	w := start(t)
	rbd := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "rbd"}, Provisioner: "rbd.csi.ceph.com"}
	w.must(w.Create(t.Context(), rbd))
	w.must(w.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Provisioner: "example.com/new"}))
	w.must(w.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "io2"}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"type": "io2"}}))
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}}
	w.must(w.Create(t.Context(), cdi))

	profile := w.profile("a known class has its sets, and goes with the CDI object", "rbd", func(p *cdiv1.StorageProfile) bool {
		return len(p.Status.ClaimPropertySets) == 3 && len(p.OwnerReferences) > 0
	})
	if profile.Status.ClaimPropertySets[0].AccessModes[0] != corev1.ReadWriteMany || *profile.Status.CloneStrategy != cdiv1.CloneStrategyHostAssisted || *profile.Status.StorageClass != "rbd" {
		t.Errorf("the profile is %+v", profile.Status)
	}
	if len(profile.OwnerReferences) != 1 || profile.OwnerReferences[0].UID != cdi.UID {
		t.Errorf("the profile goes with %+v", profile.OwnerReferences)
	}
	w.profile("a least size is noted", "io2", func(p *cdiv1.StorageProfile) bool {
		return p.Annotations[storageprofile.AnnotationMinimumSize] == "4Gi" && len(p.Status.Conditions) == 1
	})

	w.must(w.Create(t.Context(), &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "rbd-snapshots"}, Driver: "rbd.csi.ceph.com", DeletionPolicy: "Delete"}))
	w.profile("a snapshot class changes how it is cloned", "rbd", func(p *cdiv1.StorageProfile) bool {
		return ptr.Deref(p.Status.SnapshotClass, "") == "rbd-snapshots" && *p.Status.CloneStrategy == cdiv1.CloneStrategySnapshot
	})

	profile = w.profile("an unknown class says so", "new", func(p *cdiv1.StorageProfile) bool {
		return len(p.Status.Conditions) == 1 && p.Status.Conditions[0].Status == corev1.ConditionFalse && len(p.Status.ClaimPropertySets) == 0
	})
	profile.Spec.ClaimPropertySets = []cdiv1.ClaimPropertySet{{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: new(corev1.PersistentVolumeBlock)}}
	w.must(w.Update(t.Context(), profile))
	w.profile("what somebody sets is taken", "new", func(p *cdiv1.StorageProfile) bool { return len(p.Status.ClaimPropertySets) == 1 })

	w.must(w.Delete(t.Context(), rbd))
	w.until("the profile of a class that is gone is gone", func() (string, bool) {
		err := w.Get(t.Context(), client.ObjectKey{Name: "rbd"}, &cdiv1.StorageProfile{})
		return errText(err), apierrors.IsNotFound(err)
	})
}

func TestTheConfigFollowsTheCDIObject(t *testing.T) {
	w := start(t)
	w.must(w.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{names.AnnotationDefaultClass: "true"}}, Provisioner: "example.com/fast"}))
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}, Spec: cdiv1.CDISpec{Config: &cdiv1.CDIConfigSpec{
		UploadProxyURLOverride: new("uploads.example.com"), FilesystemOverhead: &cdiv1.FilesystemOverhead{StorageClass: map[string]cdiv1.Percent{"fast": "0.2"}},
	}}}
	w.must(w.Create(t.Context(), cdi))
	config := &cdiv1.CDIConfig{}
	shows := func(what string, wanted func() bool) {
		t.Helper()
		w.until(what, func() (string, bool) {
			*config = cdiv1.CDIConfig{}
			err := w.Get(t.Context(), client.ObjectKey{Name: names.CDIConfigName}, config)
			text, encodeErr := marshalled(config)
			return text + errText(err) + errText(encodeErr), err == nil && wanted()
		})
	}
	shows("the CDIConfig says what is set, and the defaults", func() bool {
		overhead := config.Status.FilesystemOverhead
		return ptr.Deref(config.Status.UploadProxyURL, "") == "uploads.example.com" && overhead.StorageClass["fast"] == "0.2" && overhead.Global == "0.06" &&
			config.Status.ScratchSpaceStorageClass == "fast" && config.Spec.FilesystemOverhead.StorageClass["fast"] == "0.2"
	})
	cdi.Spec.Config = &cdiv1.CDIConfigSpec{
		Preallocation: new(true), InsecureRegistries: []string{"registry.local:5000"},
		ImportProxy: &cdiv1.ImportProxy{HTTPSProxy: new("http://importer:pa55word@proxy:3128")},
	}
	w.must(w.Update(t.Context(), cdi))
	shows("what is taken back is gone", func() bool {
		return config.Status.UploadProxyURL == nil && config.Status.FilesystemOverhead.StorageClass["fast"] == "0.06" && config.Status.Preallocation &&
			config.Spec.FilesystemOverhead == nil && len(config.Spec.InsecureRegistries) == 1
	})
	shows("everybody may read the proxy without its password", func() bool {
		text, err := marshalled(config)
		return err == nil && !strings.Contains(text, "pa55word") && *config.Status.ImportProxy.HTTPSProxy == "http://xxxxx@proxy:3128"
	})
	w.must(w.Delete(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}))
	shows("so is what was of a class", func() bool {
		return config.Status.ScratchSpaceStorageClass == "" && len(config.Status.FilesystemOverhead.StorageClass) == 0
	})
	w.must(w.Delete(t.Context(), config))
	shows("a CDIConfig that somebody deletes is made anew", func() bool { return config.Status.Preallocation })
}
