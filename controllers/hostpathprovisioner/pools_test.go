//go:build integration

package hostpathprovisioner_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// namespace is Slipway's.
const namespace = "slipway"

// onClaims is a pool that lies on claims of a class.
func onClaims(name, class string) hppv1beta1.StoragePool {
	claims := pool(name)
	claims.PVCTemplate = &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
	}
	if class != "" {
		claims.PVCTemplate.StorageClassName = &class
	}
	return claims
}

// nodes makes the nodes a and b, of which virt-handler told, and c, of which none did.
func nodes(t *testing.T, c client.Client) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "kubevirt.io/schedulable": "true"}}}
		if name == "c" {
			delete(node.Labels, "kubevirt.io/schedulable")
		}
		check(t, c.Create(t.Context(), node))
	}
}

func claimsOfNodes(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("fast", "san"))
	condition(t, c, object, hppv1beta1.ConditionProgressing, "ClaimsNotMounted")
	condition(t, c, object, hppv1beta1.ConditionAvailable, "ClaimsNotMounted")
	for _, node := range []string{"a", "b"} {
		claim, deployment := held(t, c, "fast", node)
		if *claim.Spec.StorageClassName != "san" || claim.Spec.Resources.Requests.Storage().String() != "10Gi" || claim.Labels["kubevirt.io.hostpath-provisioner/storagePool"] != "fast-hpp" {
			t.Errorf("the claim is %+v", claim)
		}
		spec := deployment.Spec.Template.Spec
		terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if terms[0].MatchExpressions[0].Values[0] != node || spec.Volumes[0].PersistentVolumeClaim.ClaimName != claim.Name {
			t.Errorf("the Deployment is %+v", deployment)
		}
		if len(deployment.OwnerReferences) != 0 {
			t.Errorf("what is deleted with %v takes the claim from under its volumes", deployment.OwnerReferences)
		}
	}
	if count := deployments(t, c); count != 2 {
		t.Errorf("there are %d Deployments", count)
	}
	runs(t, c, "fast", "a")
	eventually(t, "the status tells that one runs", func() bool {
		pool := read(t, c, object).Status.StoragePoolStatuses[0]
		return pool.Phase == hppv1beta1.StoragePoolPreparing && pool.DesiredReady == 2 && pool.CurrentReady == 1 && len(pool.ClaimStatuses) == 2
	})
	runs(t, c, "fast", "b")
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	if pool := read(t, c, object).Status.StoragePoolStatuses[0]; pool.Phase != hppv1beta1.StoragePoolReady {
		t.Errorf("the pool is %+v", pool)
	}
}

func claimsGrow(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("fast", "san"))
	claim, _ := held(t, c, "fast", "a")
	check(t, c.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "san"}, Provisioner: "example.com", AllowVolumeExpansion: new(true)}))
	change(t, c, func(spec *hppv1beta1.HostPathProvisionerSpec) {
		spec.StoragePools[0].PVCTemplate.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi")
	})
	eventually(t, "the change is seen", func() bool {
		object = read(t, c, object)
		found := meta.FindStatusCondition(object.Status.Conditions, hppv1beta1.ConditionAvailable)
		return found != nil && found.ObservedGeneration == object.Generation
	})
	if meta.IsStatusConditionTrue(object.Status.Conditions, hppv1beta1.ConditionDegraded) {
		t.Errorf("a claim that is not bound yet degrades: %+v", object.Status.Conditions)
	}
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
	check(t, c.Status().Update(t.Context(), claim))
	eventually(t, "the claim asks for more", func() bool {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		return claim.Spec.Resources.Requests.Storage().String() == "20Gi"
	})
}

func templateDiffers(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("fast", "san"))
	held(t, c, "fast", "a")
	change(t, c, func(spec *hppv1beta1.HostPathProvisionerSpec) {
		spec.StoragePools[0].PVCTemplate.StorageClassName = new("other")
	})
	condition(t, c, object, hppv1beta1.ConditionDegraded, "Conflict")
	message := meta.FindStatusCondition(read(t, c, object).Status.Conditions, hppv1beta1.ConditionDegraded).Message
	if !strings.Contains(message, "hpp-pool-fast-a has another storageClassName than the pvcTemplate of storage pool fast") {
		t.Errorf("the message is %q", message)
	}
}

func poolOnClaimsGoes(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", pool("local"), onClaims("fast", "san"))
	claim, _ := held(t, c, "fast", "a")
	held(t, c, "fast", "b")
	volume := volumeIn(t, c, "fast", "a")
	change(t, c, func(spec *hppv1beta1.HostPathProvisionerSpec) { spec.StoragePools = spec.StoragePools[:1] })
	condition(t, c, object, hppv1beta1.ConditionProgressing, "VolumesExist")
	eventually(t, "what holds no volume is gone", func() bool { return deployments(t, c) == 1 })
	removed(t, c, volume)
	nudge(t, c)
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	eventually(t, "no Deployment is left", func() bool { return deployments(t, c) == 0 })
	if check(t, c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)); claim.DeletionTimestamp != nil {
		t.Error("the claim goes with its data")
	}
}

func poolOnItself(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("a", "hostpath-csi-b"), onClaims("b", "hostpath-csi"))
	condition(t, c, object, hppv1beta1.ConditionDegraded, "Conflict")
	if deployments(t, c) != 0 {
		t.Error("there are Deployments")
	}
}

func noDefaultBeneath(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	create(t, c, "hpp", onClaims("fast", ""))
	held(t, c, "fast", "a")
	if class(t, c, "hostpath-csi").Annotations["storageclass.kubernetes.io/is-default-class"] != "" {
		t.Error("the class is the default of the claims that it is made of")
	}
}

func legacyDirectory(t *testing.T, c client.Client) {
	t.Helper()
	created := object("hpp")
	created.Spec.PathConfig = &hppv1beta1.PathConfig{Path: "/var/hpvolumes"}
	check(t, c.Create(t.Context(), created))
	condition(t, c, created, hppv1beta1.ConditionAvailable, "PoolsReady")
	if class(t, c, "hostpath-csi").Parameters["storagePool"] != "legacy" {
		t.Error("the class is not of the pool legacy")
	}
	if pools := read(t, c, created).Status.StoragePoolStatuses; len(pools) != 1 || pools[0].Name != "legacy" {
		t.Errorf("the pools are %v", pools)
	}
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/hpvolumes/pvc-1"}},
	}}
	volume.Name, volume.Annotations = "pvc-1", map[string]string{"pv.kubernetes.io/provisioned-by": names.LegacyHostPathDriver}
	check(t, c.Create(t.Context(), volume))
	check(t, c.Delete(t.Context(), created))
	condition(t, c, created, hppv1beta1.ConditionProgressing, "VolumesExist")
	removed(t, c, volume)
}

func legacyClaims(t *testing.T, c client.Client) {
	t.Helper()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	check(t, c.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Provisioner: names.LegacyHostPathDriver, VolumeBindingMode: &mode}))
	check(t, c.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Provisioner: "example.com", VolumeBindingMode: &mode}))
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, class := range []string{"old", "another"} {
		claims[class] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-" + class, Annotations: map[string]string{names.AnnotationProvisionOnNode: "a"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
		check(t, c.Create(t.Context(), claims[class]))
	}
	chosen := func(class string) string {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(claims[class]), claims[class]))
		return claims[class].Annotations["volume.kubernetes.io/selected-node"]
	}
	created := object("hpp", pool("local"))
	created.Spec.PathConfig = &hppv1beta1.PathConfig{Path: "/var/hpvolumes"}
	check(t, c.Create(t.Context(), created)) // after the claims, which waited for it
	eventually(t, "the node that the claim names is chosen", func() bool { return chosen("old") == "a" })
	if node := chosen("another"); node != "" {
		t.Errorf("node %s is chosen for a claim of another provisioner", node)
	}
}

// held waits for the claim of a pool on a node and for its Deployment.
func held(t *testing.T, c client.Client, pool, node string) (*corev1.PersistentVolumeClaim, *appsv1.Deployment) {
	t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: "hpp-pool-" + pool + "-" + node}
	claim, deployment := &corev1.PersistentVolumeClaim{}, &appsv1.Deployment{}
	eventually(t, "there are claim and Deployment "+key.Name, func() bool {
		return c.Get(t.Context(), key, claim) == nil && c.Get(t.Context(), key, deployment) == nil
	})
	return claim, deployment
}

// runs makes the pod of a pool's Deployment, as its controllers would, and has it run.
func runs(t *testing.T, c client.Client, pool, node string) {
	t.Helper()
	_, deployment := held(t, c, pool, node)
	pod := &corev1.Pod{ObjectMeta: *deployment.Spec.Template.ObjectMeta.DeepCopy(), Spec: *deployment.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.Spec.PriorityClassName = namespace, deployment.Name, ""
	check(t, c.Create(t.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	check(t, c.Status().Update(t.Context(), pod))
}

func change(t *testing.T, c client.Client, what func(*hppv1beta1.HostPathProvisionerSpec)) {
	t.Helper()
	var object hppv1beta1.HostPathProvisioner
	check(t, c.Get(t.Context(), client.ObjectKey{Name: "hpp"}, &object))
	before := object.DeepCopy()
	what(&object.Spec)
	check(t, c.Patch(t.Context(), &object, client.MergeFrom(before)))
}

func deployments(t *testing.T, c client.Client) int {
	t.Helper()
	var found appsv1.DeploymentList
	check(t, c.List(t.Context(), &found, client.InNamespace(namespace)))
	count := 0
	for i := range found.Items {
		if found.Items[i].DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// cleanPools removes what pools on claims leave on a server without controllers.
func cleanPools(t *testing.T, c client.Client) {
	t.Helper()
	for _, in := range []string{namespace, "default"} {
		var claims corev1.PersistentVolumeClaimList
		check(t, c.List(t.Context(), &claims, client.InNamespace(in)))
		for i := range claims.Items {
			claim := &claims.Items[i]
			claim.Finalizers = nil
			check(t, client.IgnoreNotFound(c.Update(t.Context(), claim)))
		}
		for _, kind := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &appsv1.Deployment{}} {
			check(t, c.DeleteAllOf(t.Context(), kind, client.InNamespace(in), client.GracePeriodSeconds(0)))
		}
	}
	check(t, c.DeleteAllOf(t.Context(), &corev1.Node{}))
	eventually(t, "the claims are gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "hpp-pool-fast-a"}, &corev1.PersistentVolumeClaim{}))
	})
}
