package legacy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/slipway-vm/slipway/runtime/hostpath/legacy"
)

func TestAVolumeIsThatOfTheFormerProvisioner(t *testing.T) {
	for prefix, want := range map[bool]string{false: "pvc-1", true: "disk-pvc-1"} {
		p, dir := provisioner(t, prefix)
		volume, _, err := p.Provision(t.Context(), asked(nil))
		check(t, err)
		at := filepath.Join(dir, want)
		if volume.Name != "pvc-1" || volume.Spec.HostPath.Path != at || volume.Spec.Capacity.Storage().String() != "1Gi" ||
			volume.Annotations["hostPathProvisionerIdentity"] != "kubevirt.io/hostpath-provisioner" || volume.Annotations["kubevirt.io/provisionOnNode"] != "node-1" {
			t.Errorf("the volume is %+v", volume)
		}
		term := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
		if term.Key != "kubernetes.io/hostname" || term.Values[0] != "node-1" || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			t.Errorf("the volume is %+v", volume.Spec)
		}
		info, err := os.Stat(at)
		if check(t, err); info.Mode().Perm() != 0o777 {
			t.Errorf("the directory is %v", info.Mode())
		}
		if !p.ShouldDelete(t.Context(), volume) {
			t.Error("the volume is not its own")
		}
		check(t, p.Delete(t.Context(), volume))
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after its deletion: %v", err)
		}
		check(t, p.Delete(t.Context(), volume)) // after a crash
	}
}

func TestAClaimIsOfTheNodeThatItNamesOrElseOfTheOneThatWasChosen(t *testing.T) {
	p, _ := provisioner(t, false)
	const named, chosen = "kubevirt.io/provisionOnNode", "volume.kubernetes.io/selected-node"
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"none":                 {nil, false},
		"named":                {map[string]string{named: "node-1"}, true},
		"another is named":     {map[string]string{named: "node-2"}, false},
		"chosen":               {map[string]string{chosen: "node-1"}, true},
		"another is chosen":    {map[string]string{chosen: "node-2"}, false},
		"named before chosen":  {map[string]string{named: "node-1", chosen: "node-2"}, true},
		"chosen but not named": {map[string]string{named: "node-2", chosen: "node-1"}, false},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
		if got := p.ShouldProvision(t.Context(), claim); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestClaimsThatCannotBeServedSayWhatToDo(t *testing.T) {
	p, _ := provisioner(t, false)
	for name, tc := range map[string]struct {
		change func(*controller.ProvisionOptions)
		want   string
	}{
		"a block volume": {func(o *controller.ProvisionOptions) { o.PVC.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, "ask for a StorageClass of kubevirt.io.hostpath-provisioner"},
		"a clone": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "golden"}
		}, "cannot be a copy of a PersistentVolumeClaim"},
		"a selector":    {func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} }, "leave spec.selector out"},
		"parameters":    {func(o *controller.ProvisionOptions) { o.StorageClass.Parameters = map[string]string{"a": "b"} }, "has parameters"},
		"mount options": {func(o *controller.ProvisionOptions) { o.StorageClass.MountOptions = []string{"noatime"} }, "has mountOptions"},
		"too large": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Ei")
		}, "ask for less"},
		"a name that is too long": {func(o *controller.ProvisionOptions) { o.PVName = "pvc-" + strings.Repeat("x", 255) }, "at most 255 bytes"},
	} {
		_, state, err := p.Provision(t.Context(), asked(tc.change))
		if err == nil || !strings.Contains(err.Error(), tc.want) || state != controller.ProvisioningFinished {
			t.Errorf("%s: got %v, %v, want %q", name, err, state, tc.want)
		}
	}
	_, _, err := p.Provision(t.Context(), asked(func(o *controller.ProvisionOptions) {
		o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "x"}
	}))
	if _, ignored := errors.AsType[*controller.IgnoredError](err); !ignored {
		t.Errorf("a claim that a populator fills gives %v", err)
	}
}

func TestANodeThatHasNoSuchDirectorySaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		config legacy.Config
		there  bool
		want   string
	}{
		"no object":         {legacy.Config{}, false, "no HostPathProvisioner with pathConfig is for"},
		"no directory":      {legacy.Config{Path: "/nonexistent/hpvolumes", Hostname: "node-1"}, true, "/nonexistent/hpvolumes of the HostPathProvisioner's pathConfig does not exist on node node-1"},
		"another host name": {legacy.Config{Path: t.TempDir(), Hostname: "machine-1"}, true, "ask for a StorageClass of kubevirt.io.hostpath-provisioner"},
	} {
		p := legacy.New(legacy.Options{NodeName: "node-1", HostRoot: "/", Log: logr.Discard(), Config: func() (legacy.Config, bool) { return tc.config, tc.there }})
		if _, _, err := p.Provision(t.Context(), asked(nil)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
		if name == "another host name" {
			continue
		}
		volume := volumeAt(filepath.Join(tc.config.Path, "pvc-1"))
		if err := p.Delete(t.Context(), volume); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: deleting gives %v, want %q", name, err, tc.want)
		}
	}
}

func TestOnlyWhatAVolumeIsMadeAsIsRemoved(t *testing.T) {
	p, dir := provisioner(t, false)
	other := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "csi/pvc-1"), 0o755))
	check(t, os.MkdirAll(filepath.Join(other, "pvc-1"), 0o755))
	named := volumeAt(filepath.Join(dir, "csi"))
	named.Name = "csi"
	for _, volume := range []*corev1.PersistentVolume{
		volumeAt("/"), volumeAt(dir), volumeAt(filepath.Join(dir, "csi")), volumeAt(filepath.Join(dir, "csi/pvc-1")), volumeAt(filepath.Join(dir, "pvc-11")),
		volumeAt(filepath.Join(other, "pvc-1")), volumeAt(dir + "/../" + filepath.Base(other) + "/pvc-1"), named,
	} {
		if err := p.Delete(t.Context(), volume); err == nil || !strings.Contains(err.Error(), "remove it on its node") {
			t.Errorf("deleting %s at %s gives %v", volume.Name, volume.Spec.HostPath.Path, err)
		}
	}
	for _, at := range []string{filepath.Join(dir, "csi/pvc-1"), filepath.Join(other, "pvc-1")} {
		if _, err := os.Stat(at); err != nil {
			t.Error(err)
		}
	}
	foreign := volumeAt(filepath.Join(dir, "pvc-1"))
	foreign.Annotations["kubevirt.io/provisionOnNode"] = "node-2"
	if p.ShouldDelete(t.Context(), foreign) {
		t.Error("a volume of another node is deleted")
	}
}

// provisioner returns that of node-1, and its directory.
func provisioner(t *testing.T, prefix bool) (*legacy.Provisioner, string) {
	t.Helper()
	dir := t.TempDir()
	config := legacy.Config{Path: dir, UseNamingPrefix: prefix, Hostname: "node-1"}
	return legacy.New(legacy.Options{NodeName: "node-1", HostRoot: "/", Log: logr.Discard(), Config: func() (legacy.Config, bool) { return config, true }}), dir
}

// asked is for a volume of 1 GiB.
func asked(change func(*controller.ProvisionOptions)) controller.ProvisionOptions {
	options := controller.ProvisionOptions{
		PVName:       "pvc-1",
		StorageClass: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Provisioner: "kubevirt.io/hostpath-provisioner"},
		PVC: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disk"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	}
	if change != nil {
		change(&options)
	}
	return options
}

// volumeAt is a volume pvc-1 that says it is at path.
func volumeAt(path string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{}
	volume.Name = "pvc-1"
	volume.Annotations = map[string]string{"hostPathProvisionerIdentity": "kubevirt.io/hostpath-provisioner", "kubevirt.io/provisionOnNode": "node-1"}
	volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: path}
	return volume
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
