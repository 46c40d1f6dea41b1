//go:build integration

package volumesnapshot

import (
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// A claim that the cache has not seen keeps the snapshot that it is made from.
func TestAClaimThatTheCacheLacksKeepsItsSnapshot(t *testing.T) {
	c, err := client.New(apiserver.Start(t), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: in("restore"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		DataSource:  &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: kindSnapshot, Name: "kept"},
	}}
	if err := c.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{cluster: &lagging.Client{Client: c, Unseen: []client.Object{claim}}, live: c}
	got, err := r.restoring(t.Context(), &snapshotv1.VolumeSnapshot{ObjectMeta: in("kept")})
	if err != nil || !slices.Equal(got, []string{"restore"}) {
		t.Errorf("the claims made from the snapshot are %q, %v; want the one that the cache lacks", got, err)
	}
}
