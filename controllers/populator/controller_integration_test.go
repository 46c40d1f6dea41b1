//go:build integration

package populator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/populator"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// What claims say, in the field's words.
const (
	annotationPhase   = "cdi.kubevirt.io/storage.pod.phase"
	annotationMessage = "cdi.kubevirt.io/storage.condition.running.message"
	annotationNode    = "volume.kubernetes.io/selected-node"
	annotationClone   = "cdi.kubevirt.io/clonePhase"
)

// TestClaimsAreFilled runs the controllers of populators and DataVolumes against a real API server; the
// tests play kubelet, storage, garbage collector and Kubernetes' controller of volumes.
func TestClaimsAreFilled(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *world){
		"an import gives its volume to the claim":           importIsHandedOver,
		"a claim waits for its source":                      sourceComesLate,
		"a claim waits for its consumer's node":             consumerHasNode,
		"a claim may ask to be filled at once":              filledAtOnce,
		"storage that does not wait is filled in place":     filledInPlace,
		"in place a node is waited for, too":                inPlaceWaits,
		"a clone gives its volume to the claim":             cloneIsHandedOver,
		"what fails says so":                                importFails,
		"a claim that goes takes all along":                 claimGoes,
		"what has a volume keeps it":                        boundIsLeftAlone,
		"what somebody else binds is given up":              boundBySomebody,
		"what cannot be done is said":                       refusals,
		"a DataVolume of such a claim waits for it":         externalDataVolume,
		"a copied claim is filled anew":                     copiedClaim,
		"what filled a claim stays when that is asked for":  primeIsRetained,
		"a refused DataVolume is tried again until it fits": refusedByQuota,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, c)) })
	}
}

func start(t *testing.T) client.Client {
	t.Helper()
	config := apiserver.Start(t, "../hyperconverged/components/crds")
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := datavolume.SetupWithManager(mgr, datavolume.Options{ImporterImage: "registry.local/slipway:test", Namespace: "slipway"}); err != nil {
		t.Fatal(err)
	}
	if err := populator.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}}}
	for name, class := range map[string]storagev1.StorageClass{
		"fast":  {Provisioner: "csi.example.com", VolumeBindingMode: new(storagev1.VolumeBindingImmediate)},
		"local": {Provisioner: "csi.example.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
		"nfs":   {Provisioner: "example.com/nfs", VolumeBindingMode: new(storagev1.VolumeBindingImmediate)},
		"path":  {Provisioner: "example.com/path", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
	} {
		class.Name = name
		objects = append(objects, &class)
	}
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// world is one case's namespace.
type world struct {
	client.Client
	t         *testing.T
	namespace string
}

func newWorld(t *testing.T, c client.Client) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w := &world{Client: c, t: t}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for what must come soon, and shows what is there when it does not.
func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	deadline := time.After(2 * time.Minute)
	for !check() {
		select {
		case <-deadline:
			w.t.Fatalf("it did not happen that %s; there is\n%s", what, w.all())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *world) all() string {
	var text strings.Builder
	for _, list := range []client.ObjectList{&cdiv1.DataVolumeList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}} {
		err := w.List(w.t.Context(), list, client.InNamespace(w.namespace))
		data, encodeErr := yaml.Marshal(list)
		fmt.Fprintf(&text, "--- %T %v %v\n%s", list, err, encodeErr, data)
	}
	return text.String()
}

// source makes a VolumeImportSource called debian.
func (w *world) source() {
	w.t.Helper()
	w.must(w.Create(w.t.Context(), &cdiv1.VolumeImportSource{
		ObjectMeta: metav1.ObjectMeta{Name: "debian", Namespace: w.namespace},
		Spec: cdiv1.VolumeImportSourceSpec{
			Source:        &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com/debian.qcow2"}},
			Preallocation: new(true),
		},
	}))
}

// create makes a claim of a class that is filled from the source of kind called debian.
func (w *world) create(class, kind string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace, Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(class),
			Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: kind, Name: "debian"},
		},
	}
	if change != nil {
		change(claim)
	}
	w.must(w.Create(w.t.Context(), claim))
	return claim
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, claim)))
	return claim
}

// prime waits for the DataVolume that fills claim.
func (w *world) prime(claim *corev1.PersistentVolumeClaim) *cdiv1.DataVolume {
	w.t.Helper()
	dv := &cdiv1.DataVolume{}
	w.until("there is a DataVolume for the claim", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "prime-" + string(claim.UID)}, dv) == nil
	})
	return dv
}

// note waits until the claim says so.
func (w *world) note(name, annotation, want string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	w.until(fmt.Sprintf("%s of claim %s is %q", annotation, name, want), func() bool {
		claim = w.claim(name)
		return claim.Annotations[annotation] == want
	})
	return claim
}

// event waits for one of the claim, and returns its text.
func (w *world) event(claim *corev1.PersistentVolumeClaim, reason string) string {
	w.t.Helper()
	text := ""
	w.until("there is an event "+reason, func() bool {
		var all eventsv1.EventList
		w.must(w.List(w.t.Context(), &all, client.InNamespace(w.namespace)))
		for _, event := range all.Items {
			if event.Reason == reason && event.Regarding.UID == claim.UID {
				text = event.Note
				return true
			}
		}
		return false
	})
	return text
}

// bind plays storage and Kubernetes: the claim gets volume, a new one when that is nil.
func (w *world) bind(name string, volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	w.t.Helper()
	w.until("claim "+name+" exists", func() bool { return w.claim(name).UID != "" })
	claim := w.claim(name)
	if volume == nil {
		volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(claim.UID)}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: names.HostPathDriver, VolumeHandle: string(claim.UID)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyNode, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}},
			}}}},
		}}
		w.must(w.Create(w.t.Context(), volume))
	}
	w.must(w.Patch(w.t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"volumeName":%q}}`, volume.Name))))
	w.must(w.Status().Patch(w.t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`))))
	return volume
}

// handedOver waits until volume is the claim's.
func (w *world) handedOver(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	w.t.Helper()
	w.until("the volume is the claim's", func() bool {
		w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(volume), volume))
		return volume.Spec.ClaimRef.UID == claim.UID
	})
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		w.t.Errorf("the volume is %+v", volume.Spec)
	}
}

// play plays the kubelet: the importer's state, and what it ended with.
func (w *world) play(prime *cdiv1.DataVolume, phase corev1.PodPhase, last *transfer.Result) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.until("there is an importer pod", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "importer-" + prime.Name}, pod) == nil
	})
	pod.Status.Phase = phase
	status := corev1.ContainerStatus{Name: "importer"}
	switch {
	case last == nil:
		status.State.Running = &corev1.ContainerStateRunning{}
	default:
		message, err := last.Encode()
		w.must(err)
		ended := &corev1.ContainerStateTerminated{Message: string(message)}
		if phase == corev1.PodSucceeded {
			status.State.Terminated = ended
		} else {
			ended.ExitCode = 1
			status.LastTerminationState.Terminated = ended
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	w.must(w.Status().Update(w.t.Context(), pod))
	return pod
}

// gone waits until what filled the claim is.
func (w *world) gone(prime *cdiv1.DataVolume) {
	w.t.Helper()
	w.until("the DataVolume is gone", func() bool {
		return apierrors.IsNotFound(w.Get(w.t.Context(), client.ObjectKeyFromObject(prime), &cdiv1.DataVolume{}))
	})
}

// filled is what an importer of the tests ends with.
func filled() *transfer.Result {
	return &transfer.Result{Digest: "slipway1:00", DiskSize: 1 << 30, Labels: map[string]string{
		"instancetype.kubevirt.io/default-preference": "debian", "kubevirt.io/flavor": "cloud", "example.com/other": "no",
	}}
}

const imports, clones = "VolumeImportSource", "VolumeCloneSource"

func importIsHandedOver(t *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"kubevirt.io/flavor": "mine"} })
	dv := w.prime(claim)
	if spec := dv.Spec; spec.Source.HTTP == nil || !*spec.Preallocation || spec.PVC.DataSourceRef != nil || *spec.PVC.StorageClassName != "fast" {
		t.Errorf("the DataVolume is %+v", spec)
	}
	w.event(claim, "CreatedPVCPrimeSuccessfully")
	volume := w.bind(dv.Name, nil)
	w.play(dv, corev1.PodRunning, nil)
	found := w.note("disk", annotationPhase, "Running")
	for name, want := range map[string]string{
		population.AnnotationUse: "true", population.AnnotationPrime: dv.Name, population.AnnotationProgress: "N/A",
		"cdi.kubevirt.io/storage.condition.running": "true", "cdi.kubevirt.io/storage.contentType": "kubevirt", "cdi.kubevirt.io/storage.preallocation.requested": "true",
	} {
		if found.Annotations[name] != want {
			t.Errorf("%s is %q, want %q", name, found.Annotations[name], want)
		}
	}
	w.play(dv, corev1.PodSucceeded, filled())
	w.handedOver(volume, claim)
	found = w.note("disk", annotationPhase, "Succeeded") // before anybody sees it bound
	if found.Annotations[names.AnnotationDigest] != "slipway1:00" || found.Annotations[population.AnnotationProgress] != "100.0%" || found.Annotations[annotationNode] != "node-1" {
		t.Errorf("the claim says %v", found.Annotations)
	}
	if l := found.Labels; l["instancetype.kubevirt.io/default-preference"] != "debian" || l["kubevirt.io/flavor"] != "mine" || l["example.com/other"] != "" {
		t.Errorf("the claim has the labels %v", l)
	}
	if w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv) != nil {
		t.Error("the DataVolume is gone before the claim is bound")
	}
	w.bind("disk", volume)
	w.gone(dv)
	w.event(claim, "importSucceeded")
}

func sourceComesLate(_ *testing.T, w *world) {
	claim := w.create("fast", imports, nil)
	w.note("disk", annotationMessage, "VolumeImportSource debian not found; the claim is filled once it exists")
	w.event(claim, "Pending")
	w.source()
	w.prime(claim)
	w.note("disk", annotationMessage, "")
}

func consumerHasNode(t *testing.T, w *world) {
	w.source()
	claim := w.create("local", imports, nil)
	w.note("disk", annotationMessage, "the claim is filled once a pod that uses it has a node")
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	dv := w.prime(claim)
	w.until("its claim goes to the node", func() bool { return w.claim(dv.Name).Annotations[annotationNode] == "node-2" })
	w.play(dv, corev1.PodRunning, nil)
}

func filledAtOnce(_ *testing.T, w *world) {
	w.source()
	claim := w.create("local", imports, func(c *corev1.PersistentVolumeClaim) { c.Annotations[names.AnnotationBind] = "" })
	w.play(w.prime(claim), corev1.PodRunning, nil)
}

func filledInPlace(t *testing.T, w *world) {
	w.source()
	claim := w.create("nfs", imports, nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	pod := w.play(dv, corev1.PodRunning, nil)
	if source := pod.Spec.Volumes[0].PersistentVolumeClaim; source == nil || source.ClaimName != "disk" {
		t.Errorf("the pod writes to %+v", pod.Spec.Volumes)
	}
	found := w.note("disk", "cdi.kubevirt.io/storage.condition.running", "true")
	if found.Annotations[population.AnnotationUse] != "false" || !population.Unfilled(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	if w.claim(dv.Name).UID != "" {
		t.Error("there is another claim")
	}
	w.play(dv, corev1.PodSucceeded, filled())
	found = w.note("disk", annotationPhase, "Succeeded")
	if found.Annotations[names.AnnotationDigest] != "slipway1:00" || found.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		t.Errorf("the claim is %+v", found.ObjectMeta)
	}
	w.note("disk", population.AnnotationProgress, "100.0%")
	w.event(claim, "importSucceeded")
	w.gone(dv)
}

func inPlaceWaits(t *testing.T, w *world) {
	w.source()
	claim := w.create("path", imports, nil)
	dv := w.prime(claim)
	w.until("the DataVolume waits", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		return dv.Status.Phase == cdiv1.WaitForFirstConsumer
	})
	if dv.Status.ClaimName != "disk" {
		t.Errorf("the DataVolume is %+v", dv.Status)
	}
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	w.play(dv, corev1.PodRunning, nil)
}

func cloneIsHandedOver(t *testing.T, w *world) {
	golden := w.create("local", imports, func(c *corev1.PersistentVolumeClaim) {
		c.Name, c.Spec.DataSourceRef = "golden", nil
		c.Annotations[names.AnnotationDigest] = "slipway1:22"
	})
	w.bind("golden", nil)
	w.must(w.Create(t.Context(), &cdiv1.VolumeCloneSource{
		ObjectMeta: metav1.ObjectMeta{Name: "debian", Namespace: w.namespace},
		Spec:       cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: golden.Name}},
	}))
	claim := w.create("local", clones, nil)
	w.note("disk", annotationClone, "Pending")
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-2"}}}`, annotationNode))))
	dv := w.prime(claim)
	pod := w.play(dv, corev1.PodRunning, nil)
	affinity := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if values := affinity[0].MatchExpressions; len(values) != 1 || values[0].Values[0] != "node-1" {
		t.Errorf("the clone is to lie on %+v, not where its source lies", affinity)
	}
	if other := w.claim(dv.Name); other.Annotations[annotationNode] != "" || other.Spec.DataSource == nil || other.Spec.DataSource.Name != "golden" {
		t.Errorf("the other claim is %+v", other)
	}
	w.note("disk", annotationClone, "CSIClone")
	volume := w.bind(dv.Name, nil)
	w.handedOver(volume, claim)
	found := w.note("disk", annotationClone, "Succeeded")
	if found.Annotations["cdi.kubevirt.io/cloneType"] != "csi-clone" || found.Annotations[names.AnnotationDigest] != "slipway1:22" {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.bind("disk", volume)
	w.gone(dv)
	w.event(claim, "CloneSucceeded")
}

func importFails(_ *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, nil)
	dv := w.prime(claim)
	w.bind(dv.Name, nil)
	failed := transfer.Failed(transfer.Errorf(transfer.ChecksumMismatch, "another file"))
	w.play(dv, corev1.PodRunning, &failed)
	w.note("disk", annotationPhase, "Failed")
	w.note("disk", annotationMessage, "ChecksumMismatch: another file")
	if text := w.event(claim, "importFailed"); !strings.Contains(text, "import into disk failed: ChecksumMismatch") {
		w.t.Errorf("the event says %q", text)
	}
}

func claimGoes(t *testing.T, w *world) {
	w.source()
	claim := w.create("nfs", imports, nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	w.play(dv, corev1.PodRunning, nil) // as long as it uses the claim, that stays
	w.must(w.Delete(t.Context(), claim))
	w.gone(dv)
}

// boundIsLeftAlone is of claims that may hold somebody's data.
func boundIsLeftAlone(t *testing.T, w *world) {
	w.source()
	for _, class := range []string{"fast", "nfs"} {
		w.create(class, imports, func(c *corev1.PersistentVolumeClaim) { c.Name, c.Spec.VolumeName = class, "somebodys" })
	}
	mark := w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Name = "mark" })
	w.prime(mark) // by then the others were seen
	var all cdiv1.DataVolumeList
	w.must(w.List(t.Context(), &all, client.InNamespace(w.namespace)))
	if len(all.Items) != 1 || population.Chosen(w.claim("fast")) || population.Chosen(w.claim("nfs")) {
		t.Errorf("there is\n%s", w.all())
	}
}

func boundBySomebody(_ *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	w.event(claim, "NotPopulated")
	w.gone(dv)
}

func refusals(_ *testing.T, w *world) {
	w.create("fast", "VolumeUploadSource", func(c *corev1.PersistentVolumeClaim) { c.Name = "sent" })
	w.note("sent", annotationMessage, "VolumeUploadSource is not supported yet; create a DataVolume with source upload instead")
	w.create("nfs", clones, nil)
	w.note("disk", annotationMessage, "the claim's storage has no CSI driver, which clones are made by; name a storage class that has one")
	w.create("none", imports, func(c *corev1.PersistentVolumeClaim) { c.Name = "classless" })
	w.note("classless", annotationMessage, "storage class none does not exist; the claim is filled once it does")
}

func externalDataVolume(t *testing.T, w *world) {
	w.source()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace}}
	dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("nfs"),
		Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: imports, Name: "debian"},
	}
	w.must(w.Create(t.Context(), dv))
	w.bind("disk", nil)
	prime := w.prime(w.claim("disk"))
	w.play(prime, corev1.PodRunning, nil)
	if w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv)); dv.Status.Phase == cdiv1.Succeeded {
		t.Error("the DataVolume has succeeded before its claim is filled")
	}
	w.play(prime, corev1.PodSucceeded, filled())
	w.until("the DataVolume succeeds", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		return dv.Status.Phase == cdiv1.Succeeded
	})
}

func copiedClaim(_ *testing.T, w *world) {
	w.source()
	claim := w.create("nfs", imports, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{annotationPhase: "Succeeded", population.AnnotationUse: "true", population.AnnotationFilledBy: "prime-of-another", population.AnnotationProgress: "100.0%"}
	})
	w.play(w.prime(claim), corev1.PodRunning, nil)
	w.note("disk", annotationPhase, "")
	w.note("disk", population.AnnotationUse, "false")
}

func primeIsRetained(t *testing.T, w *world) {
	w.source()
	claim := w.create("fast", imports, func(c *corev1.PersistentVolumeClaim) { c.Annotations[datavolume.AnnotationRetain] = "true" })
	dv := w.prime(claim)
	volume := w.bind(dv.Name, nil)
	pod := w.play(dv, corev1.PodSucceeded, filled())
	w.handedOver(volume, claim)
	w.bind("disk", volume)
	w.event(claim, "importSucceeded")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if dv.DeletionTimestamp != nil || pod.DeletionTimestamp != nil {
		t.Error("what filled the claim goes")
	}
}

func refusedByQuota(t *testing.T, w *world) {
	w.source()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: w.namespace}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/datavolumes.cdi.kubevirt.io": resource.MustParse("0")},
	}}
	w.must(w.Create(t.Context(), quota))
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"count/datavolumes.cdi.kubevirt.io": resource.MustParse("0")}
	w.must(w.Status().Update(t.Context(), quota))
	claim := w.create("fast", imports, nil)
	if text := w.event(claim, "ErrCreatingPVCPrime"); !strings.Contains(text, "exceeded quota") {
		t.Errorf("the event says %q", text)
	}
	w.must(w.Delete(t.Context(), quota))
	w.prime(claim)
}
