//go:build integration

package hyperconverged

import (
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestAHandlerWritesWhatIsItsNodes asks as the virt-handler of node a, with the rights of its role:
// what is node a's it may change, what is node b's or another driver's it may not.
func TestAHandlerWritesWhatIsItsNodes(t *testing.T) {
	config := apiserver.Start(t, "components/crds")
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	options := testOptions()
	create := func(objects ...client.Object) {
		for _, object := range objects {
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: options.Namespace}})
	objects, err := render.Folder(components.Files(), "virt-handler", options.Values())
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if err := apply.Object(t.Context(), c, object, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, node := range []string{"a", "b"} {
		machine := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + node}}
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, machine, claimOn(node), volumeOn(node, names.HostPathDriver), legacyVolumeOn(node), snapshotOn(node))
		machine.Status.NodeName = node
		if err := c.Update(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	create(volumeOn("a", "another.driver"))

	handler := asHandler(t, config, options.Namespace, "a")
	mine, others := objectsOf("a"), objectsOf("b")
	others = append(others, volumeOn("a", "another.driver"), machineOn("b"))
	awaitRestriction(t, handler)
	handlerWritesStatusAlone(t, handler)
	for _, object := range mine {
		if err := touch(t, handler, object); err != nil {
			t.Errorf("%T %s is not its own: %v", object, object.GetName(), err)
		}
	}
	for _, object := range others {
		if err := touch(t, handler, object); !refusedByPolicy(err) {
			t.Errorf("writing %T %s: %v, want a refusal that names node a", object, object.GetName(), err)
		}
	}
	if err := handler.Delete(t.Context(), volumeOn("b", names.HostPathDriver)); !refusedByPolicy(err) {
		t.Errorf("deleting another node's volume: %v", err)
	}
	foreign := volumeOn("b", names.HostPathDriver)
	foreign.Name = "forged"
	if err := handler.Create(t.Context(), foreign); !refusedByPolicy(err) {
		t.Errorf("making a volume of another node: %v", err)
	}
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"of another node": func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"b"}
		},
		"of two nodes": func(v *corev1.PersistentVolume) {
			terms := &v.Spec.NodeAffinity.Required.NodeSelectorTerms
			*terms = append(*terms, legacyVolumeOn("b").Spec.NodeAffinity.Required.NodeSelectorTerms...)
		},
		"of all nodes but one": func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Operator = corev1.NodeSelectorOpNotIn
		},
		"of any node":     func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil },
		"of nobody known": func(v *corev1.PersistentVolume) { delete(v.Annotations, "hostPathProvisionerIdentity") },
	} {
		forged := legacyVolumeOn("a")
		forged.Name = "forged"
		change(forged)
		if err := handler.Create(t.Context(), forged); !refusedByPolicy(err) {
			t.Errorf("making a folder a volume %s: %v", name, err)
		}
	}
	own := volumeOn("a", names.HostPathDriver)
	own.Name = "made"
	if err := handler.Create(t.Context(), own); err != nil {
		t.Errorf("making a volume of its own: %v", err)
	}
	if err := handler.Delete(t.Context(), own); err != nil {
		t.Errorf("deleting a volume of its own: %v", err)
	}
}

func machineOn(node string) *virtv1.VirtualMachineInstance {
	return &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + node}}
}

// handlerWritesStatusAlone changes the machine of node a: its status it may, but for the node, and nothing else.
func handlerWritesStatusAlone(t *testing.T, handler client.Client) {
	t.Helper()
	for change, allowed := range map[string]bool{
		`{"status":{"phase":"Running"}}`:                       true,
		`{"status":{"nodeName":"b"}}`:                          false,
		`{"status":{"nodeName":null}}`:                         false,
		`{"metadata":{"labels":{"kubevirt.io/nodeName":"b"}}}`: false,
		`{"metadata":{"annotations":{"touched":"yes"}}}`:       false,
		`{"metadata":{"finalizers":["example.org/stays"]}}`:    false,
		`{"spec":{"terminationGracePeriodSeconds":7}}`:         false,
	} {
		err := handler.Patch(t.Context(), machineOn("a"), client.RawPatch("application/merge-patch+json", []byte(change)))
		if allowed && err != nil || !allowed && !refusedByPolicy(err) {
			t.Errorf("%s of its own machine: %v", change, err)
		}
	}
}

func objectsOf(node string) []client.Object {
	return []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		claimOn(node), volumeOn(node, names.HostPathDriver), legacyVolumeOn(node), snapshotOn(node),
	}
}

// legacyVolumeOn is a volume of the provisioner before the driver.
func legacyVolumeOn(node string) *corev1.PersistentVolume {
	volume := volumeOn(node, "legacy")
	volume.Annotations = map[string]string{"hostPathProvisionerIdentity": names.LegacyHostPathDriver, names.AnnotationProvisionOnNode: node}
	volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/hpvolumes/on-" + node}}
	volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelHostname
	return volume
}

func snapshotOn(node string) *snapshotv1.VolumeSnapshotContent {
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node, Labels: map[string]string{"snapshot.storage.kubernetes.io/managed-by": node}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: names.HostPathDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("h")},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "s"},
		},
	}
}

func claimOn(node string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + node, Annotations: map[string]string{"volume.kubernetes.io/selected-node": node}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func volumeOn(node, driver string) *corev1.PersistentVolume {
	here := corev1.NodeSelectorRequirement{Key: names.TopologyNode, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node + "-" + strings.ToLower(driver)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{here}},
			}}},
		},
	}
}

// asHandler is a client of the ServiceAccount of virt-handler, whose token says that its pod is on node.
func asHandler(t *testing.T, config *rest.Config, namespace, node string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":virt-handler",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitRestriction waits until both policies count.
func awaitRestriction(t *testing.T, handler client.Client) {
	t.Helper()
	objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, claimOn("b")}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(time.Minute); ; <-ticker.C {
		counting := 0
		for _, object := range objects {
			if refusedByPolicy(touch(t, handler, object)) {
				counting++
			}
		}
		if counting == len(objects) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d policies count after a minute", counting, len(objects))
		}
	}
}

// touch annotates an object.
func touch(t *testing.T, c client.Client, object client.Object) error {
	t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"touched":"` + time.Now().Format(time.RFC3339Nano) + `"}}}`)
	return c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", patch)) //nolint:wrapcheck // the test looks at the API server's own words
}

func refusedByPolicy(err error) bool {
	return err != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && strings.Contains(err.Error(), "virt-handler of node a may only change")
}
