//go:build integration

package hostpathprovisioner_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/controllers/hostpathprovisioner"
	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

// TestController runs the controller against a real API server. The cases share it and
// each leaves nothing behind.
func TestController(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, client.Client){
		"pools become classes, the first the default":           poolsBecomeClasses,
		"a pool that goes takes its class along":                poolGoes,
		"another order of pools replaces the classes":           poolsChangePlaces,
		"another default stays the default":                     anotherDefault,
		"a class made by hand that does the same is left alone": classByHand,
		"a class in the way degrades":                           classInTheWay,
		"the object stays while volumes are left":               staysWithVolumes,
		"the second object is told of the first":                secondObject,
		"what is not supported is refused with its path":        refusals,
		"the class of snapshots comes and goes with the pools":  snapshotClass,
		"another default class of snapshots stays the default":  anotherDefaultSnapshotClass,
		"a class of snapshots in the way is told of":            snapshotClassInTheWay,
		"the object stays while snapshots are left":             staysWithSnapshots,

		"a pool on claims has one on each node, and a pod that holds it": claimsOfNodes,
		"claims grow when the template asks for more":                    claimsGrow,
		"a template that claims do not fit degrades":                     templateDiffers,
		"a claim that Kubernetes refuses degrades":                       claimIsRefused,
		"a pool on claims goes when it holds no volume, without them":    poolOnClaimsGoes,
		"a claim that held volumes is missed":                            claimIsLost,
		"a claim that nothing is in can be deleted, and is made anew":    emptyClaimGoes,
		"no claim is made anew for an object that goes":                  emptyClaimGoesForGood,
		"a node that leaves keeps what it holds, one that is gone not":   nodeLeaves,
		"a directory that is forgotten with its volumes degrades":        directoryIsForgotten,
		"a pool on claims of itself is refused":                          poolOnItself,
		"a pool on claims of the default class is not that":              noDefaultBeneath,
		"the directory of the legacy provisioner has a pool, too":        legacyDirectory,
		"a legacy claim that names its node needs no pod":                legacyClaims,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, c)
			cleanUp(t, c)
			cleanPools(t, c)
		})
	}
}

func poolsBecomeClasses(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("fast"), pool("large"))
	first := class(t, c, "hostpath-csi")
	if first.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" || first.Parameters["storagePool"] != "fast" {
		t.Errorf("the first class is %+v", first)
	}
	if second := class(t, c, "hostpath-csi-large"); second.Annotations["storageclass.kubernetes.io/is-default-class"] != "" {
		t.Error("the second class is default, too")
	}
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	before := resourceVersions(t, c, object)
	object.Labels = map[string]string{"touched": "yes"}
	object.Spec.ImagePullPolicy = corev1.PullAlways
	check(t, c.Update(t.Context(), object))
	eventually(t, "the new generation is observed", func() bool {
		found := meta.FindStatusCondition(read(t, c, object).Status.Conditions, hppv1beta1.ConditionAvailable)
		return found.ObservedGeneration == object.Generation
	})
	if after := resourceVersions(t, c, object); after != before {
		t.Errorf("classes and driver were written again: %s, before %s", after, before)
	}
}

func poolGoes(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("fast"), pool("large"))
	class(t, c, "hostpath-csi-large")
	object = read(t, c, object)
	object.Spec.StoragePools = object.Spec.StoragePools[:1]
	check(t, c.Update(t.Context(), object))
	gone(t, c, "hostpath-csi-large")
}

func poolsChangePlaces(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("fast"), pool("large"))
	class(t, c, "hostpath-csi-large")
	object = read(t, c, object)
	pools := object.Spec.StoragePools
	pools[0], pools[1] = pools[1], pools[0]
	object.Spec.Workload.NodeSelector = map[string]string{"disk": "yes"}
	check(t, c.Update(t.Context(), object))
	class(t, c, "hostpath-csi-fast")
	gone(t, c, "hostpath-csi-large")
	eventually(t, "the first class is of the new first pool and its nodes", func() bool {
		first := class(t, c, "hostpath-csi")
		return first.Parameters["storagePool"] == "large" && len(first.AllowedTopologies) == 1
	})
}

func anotherDefault(t *testing.T, c client.Client) {
	t.Helper()
	other := &storagev1.StorageClass{Provisioner: "example.com/other"}
	other.Name, other.Annotations = "other", map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	check(t, c.Create(t.Context(), other))
	known(t, other)
	create(t, c, "hpp", pool("fast"))
	if class(t, c, "hostpath-csi").Annotations["storageclass.kubernetes.io/is-default-class"] != "" {
		t.Error("there are two defaults")
	}
}

func classByHand(t *testing.T, c client.Client) {
	t.Helper()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	byHand := &storagev1.StorageClass{Provisioner: names.HostPathDriver, VolumeBindingMode: &mode, Parameters: map[string]string{"storagePool": "fast"}}
	byHand.Name = "hostpath-csi"
	check(t, c.Create(t.Context(), byHand))
	object := create(t, c, "hpp", pool("fast"))
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	if class(t, c, "hostpath-csi").UID != byHand.UID {
		t.Error("the class was replaced")
	}
}

func classInTheWay(t *testing.T, c client.Client) {
	t.Helper()
	other := &storagev1.StorageClass{Provisioner: "example.com/other"}
	other.Name = "hostpath-csi"
	check(t, c.Create(t.Context(), other))
	object := create(t, c, "hpp", pool("fast"))
	condition(t, c, object, hppv1beta1.ConditionDegraded, "Conflict")
	check(t, c.Delete(t.Context(), other))
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
}

func staysWithVolumes(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("fast"))
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: names.HostPathDriver, VolumeHandle: "pvc-1"},
		},
	}}
	volume.Name, volume.Annotations = "pvc-1", map[string]string{"pv.kubernetes.io/provisioned-by": names.HostPathDriver}
	check(t, c.Create(t.Context(), volume))
	check(t, c.Delete(t.Context(), object))
	gone(t, c, "hostpath-csi")
	condition(t, c, object, hppv1beta1.ConditionProgressing, "VolumesExist")
	var driver storagev1.CSIDriver
	check(t, c.Get(t.Context(), client.ObjectKey{Name: names.HostPathDriver}, &driver))
	volume.Finalizers = nil
	check(t, c.Update(t.Context(), volume))
	check(t, c.Delete(t.Context(), volume))
	eventually(t, "the driver and the object are gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: names.HostPathDriver}, &driver)) &&
			apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	})
}

func secondObject(t *testing.T, c client.Client) {
	t.Helper()
	first := create(t, c, "a-first", pool("fast"))
	condition(t, c, first, hppv1beta1.ConditionAvailable, "PoolsReady")
	second := create(t, c, "b-second", pool("large"))
	condition(t, c, second, hppv1beta1.ConditionDegraded, "AnotherExists")
	check(t, c.Delete(t.Context(), first))
	condition(t, c, second, hppv1beta1.ConditionAvailable, "PoolsReady")
}

func snapshotClass(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("fast"))
	class := &snapshotv1.VolumeSnapshotClass{}
	exists := func() bool { return c.Get(t.Context(), client.ObjectKey{Name: "hostpath-csi"}, class) == nil }
	eventually(t, "the class of snapshots exists", exists)
	if class.Driver != names.HostPathDriver || class.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete || class.Annotations[defaultSnapshotClass] != "true" {
		t.Errorf("the class is %+v", class)
	}
	check(t, c.Delete(t.Context(), class))
	eventually(t, "the class of snapshots is back", exists)
	check(t, c.Delete(t.Context(), object))
	eventually(t, "the class of snapshots is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: "hostpath-csi"}, class))
	})
}

func anotherDefaultSnapshotClass(t *testing.T, c client.Client) {
	t.Helper()
	other := &snapshotv1.VolumeSnapshotClass{Driver: names.HostPathDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain}
	other.Name, other.Annotations = "mine", map[string]string{defaultSnapshotClass: "true"}
	check(t, c.Create(t.Context(), other))
	known(t, other)
	create(t, c, "hpp", pool("fast"))
	class := &snapshotv1.VolumeSnapshotClass{}
	eventually(t, "the class of snapshots exists", func() bool { return c.Get(t.Context(), client.ObjectKey{Name: "hostpath-csi"}, class) == nil })
	if class.Annotations[defaultSnapshotClass] != "" {
		t.Error("there are two defaults")
	}
}

func snapshotClassInTheWay(t *testing.T, c client.Client) {
	t.Helper()
	other := &snapshotv1.VolumeSnapshotClass{Driver: "other.example.com", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
	other.Name = "hostpath-csi"
	check(t, c.Create(t.Context(), other))
	object := create(t, c, "hpp", pool("fast"))
	eventually(t, "an event tells of the class", func() bool {
		var events corev1.EventList
		check(t, c.List(t.Context(), &events))
		for _, event := range events.Items {
			if event.InvolvedObject.UID == object.UID && strings.Contains(event.Message, "VolumeSnapshotClass hostpath-csi exists and is of driver other.example.com") {
				return true
			}
		}
		return false
	})
	found := &snapshotv1.VolumeSnapshotClass{}
	check(t, c.Get(t.Context(), client.ObjectKey{Name: "hostpath-csi"}, found))
	if found.UID != other.UID || found.Driver != other.Driver {
		t.Error("the class was replaced")
	}
}

func staysWithSnapshots(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("fast"))
	content := &snapshotv1.VolumeSnapshotContent{Spec: snapshotv1.VolumeSnapshotContentSpec{
		Driver: names.HostPathDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
		VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "kept"},
		Source:            snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("snapshot-1")},
	}}
	content.Name = "kept"
	check(t, c.Create(t.Context(), content))
	check(t, c.Delete(t.Context(), object))
	condition(t, c, object, hppv1beta1.ConditionProgressing, "VolumesExist")
	found := meta.FindStatusCondition(read(t, c, object).Status.Conditions, hppv1beta1.ConditionProgressing)
	if !strings.Contains(found.Message, "VolumeSnapshotContent kept") {
		t.Errorf("the message is %q", found.Message)
	}
	check(t, c.Delete(t.Context(), content))
}

// cached is what the controller reads by.
var cached client.Reader

func start(t *testing.T) client.Client {
	t.Helper()
	need.APIServer(t)
	server := &envtest.Environment{
		Scheme:                scheme.New(),
		CRDDirectoryPaths:     definitions(),
		ErrorIfCRDPathMissing: true,
	}
	config, err := apiserver.Begin(server)
	check(t, err)
	t.Cleanup(func() { check(t, server.Stop()) })
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
	})
	check(t, err)
	check(t, hostpathprovisioner.SetupWithManager(manager, hostpathprovisioner.Options{Version: "v0.1.0", Namespace: namespace, Image: "slipway"}))
	check(t, hostpathprovisioner.SetupSnapshotClass(manager))
	cached = manager.GetClient()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-done) })
	c := apiserver.Player(t, config)
	check(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	return c
}

func definitions() []string {
	var paths []string
	for _, name := range []string{
		"hostpathprovisioner.kubevirt.io_hostpathprovisioners", "snapshot.storage.k8s.io_volumesnapshotclasses", "snapshot.storage.k8s.io_volumesnapshotcontents",
	} {
		paths = append(paths, filepath.Join("..", "hyperconverged", "components", "crds", name+".yaml"))
	}
	return paths
}

// known waits until the controller knows that object was made.
func known(t *testing.T, object client.Object) {
	t.Helper()
	found := object.DeepCopyObject().(client.Object)
	eventually(t, "the controller knows "+object.GetName(), func() bool {
		return cached.Get(t.Context(), client.ObjectKeyFromObject(object), found) == nil && found.GetUID() == object.GetUID()
	})
}

// forgotten waits until the controller knows that nothing is left of what is listed, so that the next case begins anew.
func forgotten(t *testing.T, lists ...client.ObjectList) {
	t.Helper()
	for _, list := range lists {
		eventually(t, fmt.Sprintf("the controller knows of no %T any more", list), func() bool {
			check(t, cached.List(t.Context(), list))
			return meta.LenList(list) == 0
		})
	}
}

func cleanUp(t *testing.T, c client.Client) {
	t.Helper()
	check(t, c.DeleteAllOf(t.Context(), &hppv1beta1.HostPathProvisioner{}))
	eventually(t, "the objects are gone", func() bool {
		var left hppv1beta1.HostPathProvisionerList
		check(t, c.List(t.Context(), &left))
		return len(left.Items) == 0
	})
	check(t, c.DeleteAllOf(t.Context(), &storagev1.StorageClass{}))
	check(t, c.DeleteAllOf(t.Context(), &snapshotv1.VolumeSnapshotClass{}))
	forgotten(t, &hppv1beta1.HostPathProvisionerList{}, &storagev1.StorageClassList{}, &snapshotv1.VolumeSnapshotClassList{})
}

func object(name string, pools ...hppv1beta1.StoragePool) *hppv1beta1.HostPathProvisioner {
	return &hppv1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hppv1beta1.HostPathProvisionerSpec{StoragePools: pools},
	}
}

func pool(name string) hppv1beta1.StoragePool {
	return hppv1beta1.StoragePool{Name: name, Path: "/srv/" + name}
}

func create(t *testing.T, c client.Client, name string, pools ...hppv1beta1.StoragePool) *hppv1beta1.HostPathProvisioner {
	t.Helper()
	created := object(name, pools...)
	check(t, c.Create(t.Context(), created))
	eventually(t, "the object has a status", func() bool { return len(read(t, c, created).Status.Conditions) == 3 })
	return read(t, c, created)
}

func read(t *testing.T, c client.Client, object *hppv1beta1.HostPathProvisioner) *hppv1beta1.HostPathProvisioner {
	t.Helper()
	var found hppv1beta1.HostPathProvisioner
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), &found))
	return &found
}

func class(t *testing.T, c client.Client, name string) *storagev1.StorageClass {
	t.Helper()
	var found storagev1.StorageClass
	eventually(t, "class "+name+" exists", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Name: name}, &found) == nil
	})
	return &found
}

func gone(t *testing.T, c client.Client, name string) {
	t.Helper()
	eventually(t, "class "+name+" is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: name}, &storagev1.StorageClass{}))
	})
}

func condition(t *testing.T, c client.Client, object *hppv1beta1.HostPathProvisioner, kind, reason string) {
	t.Helper()
	eventually(t, kind+" is True with reason "+reason, func() bool {
		found := meta.FindStatusCondition(read(t, c, object).Status.Conditions, kind)
		return found != nil && found.Status == metav1.ConditionTrue && found.Reason == reason
	})
}

func resourceVersions(t *testing.T, c client.Client, _ *hppv1beta1.HostPathProvisioner) string {
	t.Helper()
	var driver storagev1.CSIDriver
	check(t, c.Get(t.Context(), client.ObjectKey{Name: names.HostPathDriver}, &driver))
	return driver.ResourceVersion + " " + class(t, c, "hostpath-csi").ResourceVersion + " " + class(t, c, "hostpath-csi-large").ResourceVersion
}

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
