//go:build integration

package objecttransfer

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cached"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// server is of all these tests, each of which has namespaces of it.
var server apiserver.Shared

func TestMain(m *testing.M) { os.Exit(server.Run(m)) }

// start returns how the API server is reached, with the DataVolume controller running there, and what setup adds.
func start(t *testing.T, setup ...func(ctrl.Manager) error) (client.WithWatch, *rest.Config) {
	t.Helper()
	config := server.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	player := apiserver.Player(t, config)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "slipway"}}, // the authority of upload servers is in there
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "csi.example.com"},
	} {
		if err := player.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cached.Options("slipway"), GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, add := range append(setup, func(mgr ctrl.Manager) error {
		return datavolume.SetupWithManager(mgr, datavolume.Options{ImporterImage: "registry.local/slipway:test", Namespace: "slipway"})
	}) {
		if err := add(mgr); err != nil {
			t.Fatal(err)
		}
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
	return player, config
}

// world is a disk with its volume, in a namespace of its own beside another one. It plays Kubernetes' controllers of
// volumes and owners.
type world struct {
	*testing.T
	client.WithWatch

	kind     string
	from, to types.NamespacedName
	volume   *corev1.PersistentVolume
	transfer *cdiv1.ObjectTransfer // as it was last read, and as it is to be created
}

// newWorld makes a disk of kind, whole and in nobody's use.
func newWorld(t *testing.T, c client.WithWatch, kind string) *world {
	t.Helper()
	w := &world{T: t, WithWatch: c, kind: kind}
	w.from = types.NamespacedName{Namespace: w.namespace(), Name: "disk"}
	w.to = types.NamespacedName{Namespace: w.namespace(), Name: "moved"}
	w.transfer = &cdiv1.ObjectTransfer{ObjectMeta: metav1.ObjectMeta{GenerateName: "move-"}, Spec: cdiv1.ObjectTransferSpec{
		Source: cdiv1.TransferSource{Kind: kind, Namespace: w.from.Namespace, Name: w.from.Name},
		Target: cdiv1.TransferTarget{Namespace: &w.to.Namespace, Name: &w.to.Name},
	}}
	if kind == kindDataVolume {
		dv := &cdiv1.DataVolume{ObjectMeta: w.meta(w.from)}
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "elsewhere", Name: "gone"}}
		dv.Spec.Storage = &cdiv1.StorageSpec{StorageClassName: new("local"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
		dv.Annotations[datavolume.AnnotationAdopt] = "true" // how it came by its disk in this world
		w.fill()
		w.must(c.Create(t.Context(), dv))
		w.until("the DataVolume has its disk", func() bool {
			return w.read(w.from, dv) && dv.Status.Phase == cdiv1.Succeeded && metav1.IsControlledBy(w.claim(w.from), dv)
		})
		w.must(c.Patch(t.Context(), dv, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+datavolume.AnnotationAdopt+`":null}}}`))))
	} else {
		w.fill()
	}
	return w
}

func (w *world) meta(key types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"mine": "yes"}, Annotations: map[string]string{"mine": "yes"},
	}
}

func (w *world) namespace() string {
	w.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.must(w.Create(w.Context(), namespace))
	return namespace.Name
}

// fill makes the source's claim with a volume, and a disk on it.
func (w *world) fill() {
	w.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: w.meta(w.from), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("local"),
		VolumeName: "pv-" + w.from.Namespace, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	claim.Annotations[annotationBound], claim.Annotations[names.AnnotationDigest] = "yes", "slipway1:22"
	w.must(w.Create(w.Context(), claim))
	w.volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: claim.Spec.AccessModes, StorageClassName: "local", Capacity: size, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: claim.Namespace}},
	}}
	w.must(w.Create(w.Context(), w.volume))
	w.play()
}

// play does what Kubernetes does. A volume that is released and not kept is lost: that is an error.
func (w *world) play() {
	w.Helper()
	var claims corev1.PersistentVolumeClaimList
	for _, namespace := range w.both() {
		var those corev1.PersistentVolumeClaimList
		w.must(w.List(w.Context(), &those, client.InNamespace(namespace)))
		claims.Items = append(claims.Items, those.Items...)
	}
	// After the claims: one that is gone was let go after its volume was to be kept.
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.volume), w.volume))
	phase := corev1.VolumeReleased
	for i := range claims.Items {
		claim := &claims.Items[i]
		w.collect(claim)
		has := claim.UID == w.volume.Spec.ClaimRef.UID
		if has {
			phase = corev1.VolumeBound
		}
		// Kubernetes looks at a claim when that changes.
		if has && claim.Status.Phase != corev1.ClaimBound && claim.Spec.VolumeName == w.volume.Name && claim.Annotations[AnnotationName] == "" {
			claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, w.volume.Spec.Capacity
			w.must(w.Status().Update(w.Context(), claim))
		}
	}
	if phase != w.volume.Status.Phase {
		w.volume.Status.Phase = phase
		w.must(w.Status().Update(w.Context(), w.volume))
	}
	if phase != corev1.VolumeBound && w.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		w.Fatalf("the volume is lost:\n%s", w.all())
	}
}

// both are the namespaces of source and target, which may be one.
func (w *world) both() []string {
	return slices.Compact([]string{w.from.Namespace, w.to.Namespace})
}

// collect deletes a claim whose owner is gone, and lets a deleted one go that no pod uses.
func (w *world) collect(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	if by := metav1.GetControllerOf(claim); by != nil && claim.DeletionTimestamp == nil {
		dv := &cdiv1.DataVolume{}
		if !w.read(types.NamespacedName{Namespace: claim.Namespace, Name: by.Name}, dv) || dv.UID != by.UID {
			w.must(client.IgnoreNotFound(w.Delete(w.Context(), claim, client.Preconditions{UID: &claim.UID})))
		}
	}
	if len(claim.Finalizers) == 0 || claim.DeletionTimestamp == nil {
		return
	}
	var pods corev1.PodList
	w.must(w.List(w.Context(), &pods, client.InNamespace(claim.Namespace)))
	if len(pods.Items) == 0 {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		w.must(client.IgnoreNotFound(w.Patch(w.Context(), claim, patch)))
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// until plays and waits for what must come soon, and shows what is there when it does not.
func (w *world) until(what string, check func() bool) {
	w.Helper()
	for deadline := time.After(5 * time.Minute); !check(); w.play() {
		select {
		case <-deadline:
			w.Fatalf("it did not happen that %s; there is\n%s", what, w.all())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// read reads an object, and reports whether it is there.
func (w *world) read(key types.NamespacedName, object client.Object) bool {
	w.Helper()
	err := w.Get(w.Context(), key, object)
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return err == nil
}

// claim reads a claim; it is empty when it is not there.
func (w *world) claim(key types.NamespacedName) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	w.read(key, claim)
	return claim
}

// begin creates the transfer.
func (w *world) begin() {
	w.Helper()
	w.must(w.Create(w.Context(), w.transfer))
}

// says waits until the transfer is in phase and its condition says message, and returns why.
func (w *world) says(phase cdiv1.ObjectTransferPhase, message string) string {
	w.Helper()
	var reason string
	w.until(fmt.Sprintf("the transfer is %s and says %q", phase, message), func() bool {
		w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.transfer), w.transfer))
		status := w.transfer.Status
		if status.Phase != phase || len(status.Conditions) != 1 || status.Conditions[0].Message != message {
			return false
		}
		reason = status.Conditions[0].Reason
		return true
	})
	return reason
}

// isAt checks that the disk is at key, whole, as it was and as if it had always been there, and nowhere else.
func (w *world) isAt(key types.NamespacedName) {
	w.Helper()
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.volume), w.volume))
	claim := w.claim(key)
	ref := w.volume.Spec.ClaimRef
	if claim.UID == "" || claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != w.volume.Name || ref.UID != claim.UID || ref.Name != key.Name {
		w.Errorf("the disk is not at %s", key)
	}
	if w.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || len(w.volume.Labels)+len(w.volume.Annotations) > 0 {
		w.Errorf("the volume is left as %+v, %s", w.volume.ObjectMeta, w.volume.Spec.PersistentVolumeReclaimPolicy)
	}
	wanted := map[string]string{"mine": "yes", names.AnnotationDigest: "slipway1:22"}
	for name, value := range wanted {
		if claim.Annotations[name] != value {
			w.Errorf("the claim has not annotation %s=%s", name, value)
		}
	}
	for _, name := range []string{AnnotationName, datavolume.AnnotationAdopt} {
		if _, is := claim.Annotations[name]; is {
			w.Errorf("the claim still has annotation %s", name)
		}
	}
	other := w.from
	if key == w.from {
		other = w.to
	}
	if left := w.claim(other); left.UID != "" {
		w.Errorf("there is a claim %s as well", other)
	}
	w.isDataVolume(key, other, claim)
	if w.Failed() {
		w.Fatalf("there is\n%s", w.all())
	}
}

func (w *world) isDataVolume(key, other types.NamespacedName, claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	var pods corev1.PodList
	for _, namespace := range []string{key.Namespace, other.Namespace} {
		w.must(w.List(w.Context(), &pods, client.InNamespace(namespace)))
		for i := range pods.Items {
			w.Errorf("there is pod %s/%s: something is filled anew", namespace, pods.Items[i].Name)
		}
	}
	if w.kind != kindDataVolume {
		return
	}
	dv := &cdiv1.DataVolume{}
	if w.read(other, dv) {
		w.Errorf("there is a DataVolume %s as well", other)
	}
	if !w.read(key, dv) || dv.Status.Phase != cdiv1.Succeeded || !metav1.IsControlledBy(claim, dv) || dv.Labels["mine"] != "yes" || dv.Spec.Source.PVC.Name != "gone" {
		w.Errorf("the DataVolume is %+v", dv)
	}
	if slices.Contains([]string{dv.Annotations[AnnotationName], dv.Annotations[datavolume.AnnotationAdopt]}, "true") || dv.Annotations[AnnotationName] != "" {
		w.Errorf("the DataVolume has the annotations %v", dv.Annotations)
	}
}

// all is what there is.
func (w *world) all() string {
	var text strings.Builder
	for _, list := range []client.ObjectList{
		&cdiv1.DataVolumeList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{},
	} {
		for _, namespace := range w.both() {
			err := w.List(context.Background(), list, client.InNamespace(namespace))
			data, encodeErr := yaml.Marshal(list)
			fmt.Fprintf(&text, "%T in %s: %v %v\n%s\n", list, namespace, err, encodeErr, data)
		}
	}
	for _, object := range []client.Object{w.volume, w.transfer} {
		if object == nil {
			continue
		}
		err := w.Get(context.Background(), client.ObjectKeyFromObject(object), object)
		data, encodeErr := yaml.Marshal(object)
		fmt.Fprintf(&text, "%T: %v %v\n%s\n", object, err, encodeErr, data)
	}
	return text.String()
}
