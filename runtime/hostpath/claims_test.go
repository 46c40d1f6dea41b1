//go:build integration

package hostpath_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestPoolsOnClaims runs node storage against a real API server, with pools whose claims pods hold; the test mounts
// what the kubelet would.
func TestPoolsOnClaims(t *testing.T) {
	need.Root(t, "mount")
	n := start(t)
	var object hppv1beta1.HostPathProvisioner
	check(t, n.Get(t.Context(), client.ObjectKey{Name: "hpp"}, &object))
	for _, name := range []string{"mounted", "path"} {
		object.Spec.StoragePools = append(object.Spec.StoragePools, hppv1beta1.StoragePool{Name: name, Path: "/pool/" + name, PVCTemplate: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}})
		check(t, n.Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: names.HostPathDriver,
			Parameters: map[string]string{"storagePool": name}, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		}))
	}
	check(t, n.Update(t.Context(), &object))
	waiting := n.claim(t, "on-mounted", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("mounted") })
	n.event(t, waiting, "storage pool mounted lies on the claim "+namespace+"/hpp-pool-mounted-node-1, which is not mounted on node node-1")

	n.held(t, "default", "mounted", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}}) // a pod of anybody's
	pod := n.held(t, namespace, "mounted", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "x"}})
	mount := filepath.Join(n.root, "pods", string(pod.UID), "volumes/kubernetes.io~csi/"+namespace+"-mounted/mount")
	check(t, os.MkdirAll(mount, 0o755))
	check(t, unix.Mount("tmpfs", mount, "tmpfs", 0, "size=2g"))
	t.Cleanup(func() { check(t, unix.Unmount(mount, unix.MNT_DETACH)) })
	volume := n.volumeOf(t, waiting)
	if _, err := os.Stat(filepath.Join(mount, volume.Name)); err != nil {
		t.Error(err)
	}

	dir := t.TempDir()
	n.held(t, namespace, "path", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}})
	volume = n.volumeOf(t, n.claim(t, "on-path", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("path") }))
	if _, err := os.Stat(filepath.Join(dir, volume.Name)); err != nil {
		t.Error(err)
	}
}

// held makes a pod that holds the claim of a pool on this node, and the claim bound to a volume.
func (n node) held(t *testing.T, in, pool string, source corev1.PersistentVolumeSource) *corev1.Pod {
	t.Helper()
	name := "hpp-pool-" + pool + "-node-1"
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: in + "-" + pool}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeSource: source,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: volume.Spec.AccessModes, StorageClassName: new(""), VolumeName: volume.Name,
		Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
	}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name, Labels: map[string]string{names.LabelPoolPod: pool + "-hpp"}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "mounter", Image: "slipway"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}},
		},
	}
	check(t, n.Create(t.Context(), volume))
	check(t, n.Create(t.Context(), claim))
	check(t, n.Create(t.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	check(t, n.Status().Update(t.Context(), pod))
	return pod
}
