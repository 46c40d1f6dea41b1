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
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

func start(t *testing.T) client.Client {
	t.Helper()
	config := apiserver.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	c := apiserver.Player(t, config)
	// Before the controllers, which decide by what there is: how claims of a class are filled, and the authority of upload servers, which is in
	// the namespace.
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "slipway"}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}},
	}
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
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
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
	deadline := time.After(5 * time.Minute)
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
	if last == nil {
		status.State.Running = &corev1.ContainerStateRunning{}
	} else {
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
