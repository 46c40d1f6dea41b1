//go:build integration

package hostpathprovisioner_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
)

func refusals(t *testing.T, c client.Client) {
	t.Helper()
	for name, tc := range map[string]struct {
		change func(*hppv1beta1.HostPathProvisionerSpec)
		want   []string
	}{
		"the legacy path without one": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.PathConfig = &hppv1beta1.PathConfig{Path: "hpvolumes"}
		}, []string{"spec.pathConfig.path", "absolute and clean"}},
		"a pool where the legacy one is": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.PathConfig = &hppv1beta1.PathConfig{Path: "/srv"}
			s.StoragePools[0].Path = "/srv/csi"
		}, []string{"spec.storagePools", "a directory of its own"}},
		"a pool of the legacy one's name": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.PathConfig = &hppv1beta1.PathConfig{Path: "/var/hpvolumes"}
			s.StoragePools[0].Name = "legacy"
		}, []string{"spec.storagePools", "name the other pools otherwise"}},
		"claims of blocks": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0] = onClaims("fast", "san")
			s.StoragePools[0].PVCTemplate.VolumeMode = new(corev1.PersistentVolumeBlock)
		}, []string{"pvcTemplate.volumeMode", "not supported yet"}},
		"claims that nodes share": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0] = onClaims("fast", "san")
			s.StoragePools[0].PVCTemplate.AccessModes[0] = corev1.ReadWriteMany
		}, []string{"pvcTemplate.accessModes", "ask for ReadWriteOnce alone"}},
		"claims without a size": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0] = onClaims("fast", "san")
			s.StoragePools[0].PVCTemplate.Resources.Requests = nil
		}, []string{"pvcTemplate.resources", "requests.storage is missing"}},
		"claims of one volume": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0] = onClaims("fast", "san")
			s.StoragePools[0].PVCTemplate.VolumeName = "disk"
		}, []string{"pvcTemplate.volumeName", "leave volumeName out"}},
		"claims with data": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0] = onClaims("fast", "san")
			s.StoragePools[0].PVCTemplate.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "golden"}
		}, []string{"pvcTemplate", "leave dataSource and dataSourceRef out"}},
		"a path with .. in it": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0].Path = "/var/../etc"
		}, []string{"spec.storagePools[0].path", "absolute and clean"}},
		"two pools in one directory": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools = append(s.StoragePools, hppv1beta1.StoragePool{Name: "twin", Path: s.StoragePools[0].Path})
		}, []string{"spec.storagePools", "same path"}},
		"no pool":  {func(s *hppv1beta1.HostPathProvisionerSpec) { s.StoragePools = nil }, []string{"spec", "storagePools is empty"}},
		"affinity": {func(s *hppv1beta1.HostPathProvisionerSpec) { s.Workload.Affinity = &corev1.Affinity{} }, []string{"spec.workload.affinity", "nodeSelector"}},
		"gates":    {func(s *hppv1beta1.HostPathProvisionerSpec) { s.FeatureGates = []string{"Snapshotting", "Flying"} }, []string{"spec.featureGates", "the only feature gate is Snapshotting"}},
		"another way of snapshots": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0].SnapshotProvider = "rsync"
		}, []string{"spec.storagePools[0].snapshotProvider", "name reflink"}},
		"a pool that nodes share": {func(s *hppv1beta1.HostPathProvisionerSpec) {
			s.StoragePools[0].OverlayClassName = "shared"
		}, []string{"spec.storagePools[0].overlayClassName", "not supported yet"}},
		"long name": {func(s *hppv1beta1.HostPathProvisionerSpec) { s.StoragePools[0].Name = strings.Repeat("x", 51) }, []string{"spec.storagePools[0].name", "50"}},
	} {
		t.Run(name, func(t *testing.T) {
			object := object("refused", pool("fast"))
			tc.change(&object.Spec)
			err := c.Create(t.Context(), object, client.DryRunAll)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to say %q", err, want)
				}
			}
		})
	}
	fields := object("fields", pool("fast"))
	fields.Spec.FeatureGates, fields.Spec.StoragePools[0].SnapshotProvider = []string{"Snapshotting"}, "reflink"
	if err := c.Create(t.Context(), fields, client.DryRunAll); err != nil {
		t.Errorf("what the field's objects have is refused: %v", err)
	}
	moved := create(t, c, "hpp", pool("fast"))
	moved = read(t, c, moved)
	moved.Spec.StoragePools[0].Path = "/srv/elsewhere"
	if err := c.Update(t.Context(), moved); err == nil || !strings.Contains(err.Error(), "cannot change") {
		t.Errorf("moving a pool gives %v", err)
	}
	moved.Spec.StoragePools[0] = onClaims("fast", "san")
	if err := c.Update(t.Context(), moved); err == nil || !strings.Contains(err.Error(), "add a pool of another name") {
		t.Errorf("laying a pool on claims gives %v", err)
	}
}

// claimIsRefused has a template that Kubernetes takes no claim of, and shows that the other pool's are made all the same.
func claimIsRefused(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	nothing := onClaims("large", "san")
	nothing.PVCTemplate.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("0")
	object := create(t, c, "hpp", nothing, onClaims("fast", "san"))
	degraded(t, c, object, "Conflict", "hpp-pool-large-a of storage pool large cannot be made; correct its pvcTemplate, or what forbids it")
	for _, node := range []string{"a", "b"} {
		held(t, c, "fast", node)
	}
	change(t, c, func(spec *hppv1beta1.HostPathProvisionerSpec) {
		spec.StoragePools[0].PVCTemplate.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
	})
	held(t, c, "large", "a")
	condition(t, c, object, hppv1beta1.ConditionAvailable, "ClaimsNotMounted")
}
