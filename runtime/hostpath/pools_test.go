package hostpath

import (
	"maps"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
)

// watched are pools of node-1 that watch nothing: the HostPathProvisioner asks for the directory local, and a pod holds
// the claim of the pool former, but does not run.
func watched(t *testing.T) *pools {
	t.Helper()
	watch := func(of runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, of, 0, cache.Indexers{})
	}
	p := &pools{
		options: Options{NodeName: "node-1", Namespace: "slipway", KubeletRoot: "/var/lib/kubelet", Log: logr.Discard()},
		mounts:  map[types.UID]driver.Place{}, changed: make(chan struct{}), synced: true,
		provisioner: watch(&unstructured.Unstructured{}), nodes: watch(&corev1.Node{}), pods: watch(&corev1.Pod{}),
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&hppv1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: "hpp"},
		Spec:       hppv1beta1.HostPathProvisionerSpec{StoragePools: []hppv1beta1.StoragePool{{Name: "local", Path: "/srv/local"}}},
	})
	check(t, err)
	check(t, p.provisioner.GetStore().Add(&unstructured.Unstructured{Object: object}))
	check(t, p.nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}))
	former := hppv1beta1.StoragePool{Name: "former"}
	check(t, p.pods.GetStore().Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "slipway", Name: "held", UID: "uid-1", Labels: map[string]string{names.LabelPoolPod: former.Label()}},
		Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: former.ClaimName("node-1")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}))
	return p
}

func TestAPoolWhosePodDoesNotRunWaitsForItsClaim(t *testing.T) {
	p := watched(t)
	p.update(t.Context())
	want := map[string]driver.Place{"local": {Path: "/srv/local"}, "former": {Claim: "slipway/hpp-pool-former-node-1"}}
	if got := p.Pools(); !maps.Equal(got, want) {
		t.Errorf("the pools are %+v, want %+v", got, want)
	}
}

func TestNoPoolIsKnownBeforeAllAre(t *testing.T) {
	for name, missing := range map[string]func(*pools){
		"before all was read": func(p *pools) { p.synced = false },
		"without the node": func(p *pools) {
			check(t, p.nodes.GetStore().Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}))
		},
	} {
		p := watched(t)
		missing(p)
		p.update(t.Context())
		if got := p.Pools(); len(got) != 0 {
			t.Errorf("%s the pools are %+v", name, got)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
