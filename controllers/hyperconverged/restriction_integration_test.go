//go:build integration

package hyperconverged

import (
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
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
	handlerWritesItsNodesLabelsAlone(t, handler)
	handlerTellsInItsOwnName(t, handler, asHandler(t, config, options.Namespace, "b"))
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

// handlerWritesItsNodesLabelsAlone changes Nodes otherwise than by labels and annotations, and their status, which is the kubelet's.
func handlerWritesItsNodesLabelsAlone(t *testing.T, handler client.Client) {
	t.Helper()
	patch := func(change string) client.Patch {
		return client.RawPatch("application/merge-patch+json", []byte(change))
	}
	own, other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	if err := handler.Patch(t.Context(), own, patch(`{"metadata":{"labels":{"cpu-model.node.kubevirt.io/Penryn":"true"}}}`)); err != nil {
		t.Errorf("labelling its own node: %v", err)
	}
	if err := handler.Patch(t.Context(), own, patch(`{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`)); !refusedByPolicy(err) {
		t.Errorf("tainting its own node: %v", err)
	}
	for _, node := range []*corev1.Node{own, other} {
		if err := handler.Status().Patch(t.Context(), node, patch(`{"status":{"capacity":{"devices.kubevirt.io/kvm":"9"}}}`)); !apierrors.IsForbidden(err) {
			t.Errorf("writing the status of node %s: %v, want that it is forbidden", node.Name, err)
		}
	}
}

// handlerTellsInItsOwnName makes and changes events as the handlers of node a and of node b.
func handlerTellsInItsOwnName(t *testing.T, handler, another client.Client) {
	t.Helper()
	machine := corev1.ObjectReference{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Namespace: "default", Name: "on-a"}
	event := func(name string, change func(*eventsv1.Event)) *eventsv1.Event {
		e := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, EventTime: metav1.NowMicro(), Type: corev1.EventTypeNormal,
			Reason: "Started", Action: "Start", ReportingController: "virt-handler", ReportingInstance: "virt-handler-" + podOn("a"), Regarding: machine,
		}
		change(e)
		return e
	}
	node := func(name string) func(*eventsv1.Event) {
		return func(e *eventsv1.Event) {
			e.Namespace, e.Regarding = "default", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name}
		}
	}
	for name, c := range map[string]struct {
		change  func(*eventsv1.Event)
		allowed bool
	}{
		"of-a-machine":           {func(*eventsv1.Event) {}, true},
		"of-its-node":            {node("a"), true},
		"of-another-node":        {node("b"), false},
		"in-the-name-of-another": {func(e *eventsv1.Event) { e.ReportingInstance = "virt-handler-" + podOn("b") }, false},
		"in-the-name-of-a-trusted": {func(e *eventsv1.Event) {
			e.ReportingController, e.ReportingInstance = "virt-controller", "virt-controller-0"
		}, false},
		"of-a-secret": {func(e *eventsv1.Event) { e.Regarding.APIVersion, e.Regarding.Kind = "v1", "Secret" }, false},
	} {
		if err := handler.Create(t.Context(), event(name, c.change)); c.allowed && err != nil || !c.allowed && !refusedByPolicy(err) {
			t.Errorf("telling %s: %v", name, err)
		}
	}
	// The library that provisions volumes tells in the older group, where its name is the component's.
	for component, allowed := range map[string]bool{
		"kubevirt.io.hostpath-provisioner_" + podOn("a") + "_0b5e": true,
		"kubevirt.io.hostpath-provisioner_" + podOn("b") + "_0b5e": false,
		"": false,
	} {
		older := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "older-"}, Reason: "Provisioning", ReportingController: component,
			Source:         corev1.EventSource{Component: component},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: "on-a"},
		}
		if err := handler.Create(t.Context(), older); allowed && err != nil || !allowed && !refusedByPolicy(err) {
			t.Errorf("telling as component %q: %v", component, err)
		}
	}
	// What has been told, another can neither change nor take for its own.
	told := event("of-a-machine", func(*eventsv1.Event) {})
	again := client.RawPatch("application/merge-patch+json", []byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`))
	if err := handler.Patch(t.Context(), told, again); err != nil {
		t.Errorf("telling once more: %v", err)
	}
	if err := another.Patch(t.Context(), told, again); err == nil || !strings.Contains(err.Error(), "virt-handler of node b may only change events") {
		t.Errorf("changing what another has told: %v", err)
	}
	if err := handler.Get(t.Context(), client.ObjectKeyFromObject(told), &eventsv1.Event{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading events: %v, want that it is forbidden", err)
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
		Extra: map[string][]string{
			"authentication.kubernetes.io/node-name": {node}, "authentication.kubernetes.io/pod-name": {podOn(node)},
		},
	}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podOn is the name of the pod of node's handler.
func podOn(node string) string { return "virt-handler-of-" + node }

// awaitRestriction waits until all policies count.
func awaitRestriction(t *testing.T, handler client.Client) {
	t.Helper()
	objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, claimOn("b")}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C {
		counting := 0
		for _, object := range objects {
			if refusedByPolicy(touch(t, handler, object)) {
				counting++
			}
		}
		nobodys := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "nobodys-"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
		if refusedByPolicy(handler.Create(t.Context(), nobodys)) {
			counting++
		}
		if counting == len(objects)+1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d policies count after %s", counting, len(objects)+1, patience)
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
