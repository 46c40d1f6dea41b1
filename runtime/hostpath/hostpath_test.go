//go:build integration

package hostpath_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/runtime/hostpath"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestProvisioning runs node storage against a real API server, which has no kubelet, scheduler or
// volume controller: the tests write what these would.
func TestProvisioning(t *testing.T) {
	n := start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, node)
	}{
		{"the kubelet hears of the driver as long as there are pools", registered},
		{"a claim of this node gets a volume, which goes with it", provisioned},
		{"a claim of another node is left alone", ofAnotherNode},
		{"a clone has the data of its source", cloned},
		{"a clone of a volume of another node asks for another choice of node", clonedFromAnotherNode},
		{"a claim that a populator fills is left to it", populated},
		{"a pool without a directory is named in the event", missingPool},
		{"a claim for many nodes is refused with what to do", manyNodes},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n) })
	}
}

func registered(t *testing.T, n node) {
	t.Helper()
	socket := filepath.Join(n.root, "plugins_registry", names.HostPathDriver+"-reg.sock")
	exists := func() bool { _, err := os.Stat(socket); return err == nil }
	eventually(t, "the driver is registered", exists)
	var object hppv1beta1.HostPathProvisioner
	check(t, n.Get(t.Context(), client.ObjectKey{Name: "hpp"}, &object))
	object.Spec.Workload.NodeSelector = map[string]string{"storage": "yes"}
	check(t, n.Update(t.Context(), &object))
	eventually(t, "the driver is taken back from a node that is not selected", func() bool { return !exists() })
	kubeNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	check(t, n.Get(t.Context(), client.ObjectKeyFromObject(kubeNode), kubeNode))
	kubeNode.Labels["storage"] = "yes"
	check(t, n.Update(t.Context(), kubeNode))
	eventually(t, "the driver is registered on a node that is selected", exists)
}

func provisioned(t *testing.T, n node) {
	t.Helper()
	created := n.claim(t, "disk", nil)
	volume := n.volumeOf(t, created)
	if volume.Spec.Capacity.Storage().String() != "1Gi" || volume.Spec.StorageClassName != "hostpath-csi" || len(volume.Finalizers) == 0 {
		t.Errorf("the volume is %+v", volume)
	}
	dir := filepath.Join(n.pool, volume.Name)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	check(t, n.Delete(t.Context(), created))
	volume.Status.Phase = corev1.VolumeReleased
	check(t, n.Status().Update(t.Context(), volume))
	eventually(t, "the directory is gone, and the volume but for what Kubernetes keeps it for", func() bool {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(volume), volume))
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && volume.DeletionTimestamp != nil && len(volume.Finalizers) == 1 &&
			volume.Finalizers[0] == "kubernetes.io/pv-protection"
	})
}

func ofAnotherNode(t *testing.T, n node) {
	t.Helper()
	elsewhere := n.claim(t, "elsewhere", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations["volume.kubernetes.io/selected-node"] = "node-2"
	})
	n.volumeOf(t, n.claim(t, "here", nil)) // which comes after, and is done
	if err := n.Get(t.Context(), client.ObjectKey{Name: volumeName(elsewhere)}, &corev1.PersistentVolume{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim of the other node has a volume: %v", err)
	}
}

func cloned(t *testing.T, n node) {
	t.Helper()
	source := n.bind(t, n.claim(t, "golden", nil))
	check(t, os.WriteFile(filepath.Join(n.pool, source.Spec.VolumeName, "disk.img"), []byte("golden"), 0o600))
	clone := n.volumeOf(t, n.claim(t, "clone", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "golden"}
	}))
	data, err := os.ReadFile(filepath.Join(n.pool, clone.Name, "disk.img"))
	if check(t, err); string(data) != "golden" {
		t.Errorf("the clone holds %q", data)
	}
}

func clonedFromAnotherNode(t *testing.T, n node) {
	t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: names.HostPathDriver, VolumeHandle: "far",
		}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyNode, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-2"}}},
		}}}},
	}}
	check(t, n.Create(t.Context(), volume))
	source := n.claim(t, "far", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Annotations = "far", nil })
	source.Status.Phase = corev1.ClaimBound
	check(t, n.Status().Update(t.Context(), source))
	clone := n.claim(t, "near", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "far"}
	})
	n.event(t, clone, "is on node node-2, the new one is to be on node-1")
	eventually(t, "the scheduler may choose again", func() bool {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(clone), clone))
		return clone.Annotations["volume.kubernetes.io/selected-node"] == ""
	})
}

func populated(t *testing.T, n node) {
	t.Helper()
	filled := n.claim(t, "filled", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "x"}
	})
	n.volumeOf(t, n.claim(t, "empty", nil)) // which comes after, and is done
	if err := n.Get(t.Context(), client.ObjectKey{Name: volumeName(filled)}, &corev1.PersistentVolume{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim has a volume: %v", err)
	}
}

func missingPool(t *testing.T, n node) {
	t.Helper()
	waiting := n.claim(t, "waiting", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("hostpath-csi-missing") })
	n.event(t, waiting, "storage pool missing: the directory "+n.pool+"-missing does not exist on node node-1")
	check(t, os.Mkdir(n.pool+"-missing", 0o755))
	n.volumeOf(t, waiting)
}

func manyNodes(t *testing.T, n node) {
	t.Helper()
	many := n.claim(t, "many", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	n.event(t, many, "ask for ReadWriteOnce")
}

// namespace is Slipway's.
const namespace = "slipway"

// node is a node with storage, and a client of its API server.
type node struct {
	client.Client
	root, pool string
	config     *rest.Config // of the test
	own        *rest.Config // of its node storage, with the rights of virt-handler
	stop       func()       // ends its node storage
}

func start(t *testing.T) node {
	t.Helper()
	need.APIServer(t)
	server := &envtest.Environment{
		Scheme:                scheme.New(),
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "controllers", "hyperconverged", "components", "crds", "hostpathprovisioner.kubevirt.io_hostpathprovisioners.yaml")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := apiserver.Begin(server)
	check(t, err)
	t.Cleanup(func() { check(t, server.Stop()) })
	c := apiserver.Player(t, config)
	root, err := os.MkdirTemp("", "kubelet") // a short path: sockets' names are limited
	check(t, err)
	n := node{Client: c, root: root, pool: filepath.Join(t.TempDir(), "pool"), config: config}
	n.own = asComponent(t, server, c, "virt-handler")
	t.Cleanup(func() { check(t, os.RemoveAll(root)) })
	check(t, os.Mkdir(n.pool, 0o755))
	n.prepare(t)
	n.stop = n.run(t)
	return n
}

// asComponent is the access of one of Slipway's components, with the rights that the operator gives it.
func asComponent(t *testing.T, server *envtest.Environment, c client.Client, component string) *rest.Config {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "controllers", "hyperconverged", "components", component, "rbac.yaml"))
	check(t, err)
	role := &rbacv1.ClusterRole{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			check(t, yaml.UnmarshalStrict([]byte(document), role))
		}
	}
	if len(role.Rules) == 0 {
		t.Fatalf("component %s has no rules", component)
	}
	check(t, c.Create(t.Context(), role))
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: component}},
	}
	binding.Name = component
	check(t, c.Create(t.Context(), binding))
	user, err := server.AddUser(envtest.User{Name: component}, nil)
	check(t, err)
	return user.Config()
}

func (n node) prepare(t *testing.T) {
	t.Helper()
	check(t, n.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelHostname: "node-1"}}}))
	check(t, n.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	check(t, n.Create(t.Context(), &hppv1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: "hpp"},
		Spec: hppv1beta1.HostPathProvisionerSpec{StoragePools: []hppv1beta1.StoragePool{
			{Name: "local", Path: n.pool}, {Name: "missing", Path: n.pool + "-missing"},
		}},
	}))
	for name, pool := range map[string]string{"hostpath-csi": "local", "hostpath-csi-missing": "missing"} {
		check(t, n.Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: names.HostPathDriver,
			Parameters: map[string]string{"storagePool": pool}, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		}))
	}
}

// run runs node storage until stop is called, or the test ends.
func (n node) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- hostpath.Run(ctx, hostpath.Options{
			NodeName: "node-1", Namespace: namespace, KubeletRoot: n.root, HostRoot: "/", Config: n.own, Version: "test", Log: logr.Discard(),
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		check(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// claim makes a claim as it is once the scheduler chose this node.
func (n node) claim(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	created := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{
			"volume.kubernetes.io/selected-node": "node-1", "volume.kubernetes.io/storage-provisioner": names.HostPathDriver,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("hostpath-csi"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(created)
	}
	check(t, n.Create(t.Context(), created))
	return created
}

func (n node) volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	var volume corev1.PersistentVolume
	eventually(t, "claim "+claim.Name+" has a volume", func() bool {
		return n.Get(t.Context(), client.ObjectKey{Name: volumeName(claim)}, &volume) == nil
	})
	return &volume
}

// bind gives a claim its volume.
func (n node) bind(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim.Spec.VolumeName = n.volumeOf(t, claim).Name
	check(t, n.Update(t.Context(), claim))
	claim.Status.Phase = corev1.ClaimBound
	check(t, n.Status().Update(t.Context(), claim))
	return claim
}

func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("it never came: %s", what)
		case <-tick.C:
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
