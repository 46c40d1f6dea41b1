//go:build integration

package datavolume_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cached"
	"github.com/slipway-vm/slipway/controllers/datasource"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestController runs the controllers against a real API server; the tests play kubelet and storage.
func TestController(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *world){
		"an import succeeds":                                   importSucceeds,
		"an import from a registry gives its labels":           importsLabels,
		"an image is looked for where registries.conf says":    looksWhereRegistriesConfSays,
		"a source is reached by the proxy that is set":         goesByTheProxy,
		"an image that the node pulls":                         nodePulls,
		"a failed import is tried again, a fatal one is not":   importFails,
		"a claim that waits for its consumer gets no pod":      waitsForConsumer,
		"a claim of another is not touched until it may be":    foreignClaim,
		"a clone through a DataSource waits for its source":    cloneThroughDataSource,
		"what is not supported says so":                        unsupportedSource,
		"a volume that is prepared is not written over":        takesPreparedVolume,
		"a clone on a volume that is prepared":                 takesPreparedClone,
		"a volume that is prepared and does not fit":           passesUnfitVolume,
		"a volume that was prepared goes":                      forgetsGoneVolume,
		"a DataVolume of a backup waits for its claim":         waitsForRestoredClaim,
		"a claim that has its disk is bound at once":           bindsRestoredClaim,
		"a claim is taken over by the gate":                    adoptsByGate,
		"a DataVolume goes after its time":                     goesAfterItsTime,
		"a claim takes its modes from the StorageProfile":      modesOfTheProfile,
		"a quota is told of":                                   quotaExceeded,
		"an upload waits for its image":                        uploadSucceeds,
		"an upload server of an old authority is replaced":     uploadServerIsReplaced,
		"the Service of an upload server is taken, or deleted": uploadServiceIsTaken,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, newWorld(t, c))
		})
	}
}

// cluster is an API server with the controllers.
type cluster struct {
	client.Client
	cached client.Reader // what the controllers know of it
}

func start(t *testing.T) *cluster {
	t.Helper()
	config := apiserver.Start(t, apiserver.Only(t, crds, "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	c := apiserver.Player(t, config)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}}); err != nil {
		t.Fatal(err)
	}
	// Before the controllers, which treat a class that they do not know otherwise.
	for name, mode := range map[string]storagev1.VolumeBindingMode{"fast": storagev1.VolumeBindingImmediate, "local": storagev1.VolumeBindingWaitForFirstConsumer} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/" + name, VolumeBindingMode: new(mode)}
		if err := c.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cached.Options(installed), GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)}, // for -count
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := datavolume.SetupWithManager(mgr, datavolume.Options{ImporterImage: "registry.local/slipway:test", Namespace: installed}); err != nil {
		t.Fatal(err)
	}
	if err := datasource.SetupWithManager(mgr, datasource.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := datavolume.SetupSnapshots(mgr, mgr); err != nil {
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
	return &cluster{Client: c, cached: mgr.GetClient()}
}

// installed is the namespace of the installation.
const installed = "slipway"

// crds is where the definitions are.
const crds = "../hyperconverged/components/crds"

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newWorld makes a case's namespace.
func newWorld(t *testing.T, c client.Client) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w := &world{Client: c, t: t}
	if running, is := c.(*cluster); is {
		w.cached = running.cached
	}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	return w
}

// world is one case's namespace.
type world struct {
	client.Client
	cached    client.Reader // the controllers' view; nil where none run
	t         *testing.T
	namespace string
}

// seen waits until the controllers, where some run, know object as it is, or a later state of it.
func (w *world) seen(object client.Object) {
	w.t.Helper()
	if w.cached == nil {
		return
	}
	version := func(of client.Object) uint64 {
		n, err := strconv.ParseUint(of.GetResourceVersion(), 10, 64)
		w.must(err)
		return n
	}
	now := object.DeepCopyObject().(client.Object)
	w.until(fmt.Sprintf("the controllers know %T %s", object, object.GetName()), func() bool {
		err := w.cached.Get(context.Background(), client.ObjectKeyFromObject(object), now)
		w.must(client.IgnoreNotFound(err))
		return err == nil && version(now) >= version(object)
	})
}

// deleted deletes what holds for all cases, and waits until the controllers, where some run, know that it is gone.
func (w *world) deleted(object client.Object) {
	w.t.Helper()
	w.must(client.IgnoreNotFound(w.Delete(context.Background(), object)))
	if w.cached == nil {
		return
	}
	w.until(fmt.Sprintf("the controllers know that %T %s is gone", object, object.GetName()), func() bool {
		err := w.cached.Get(context.Background(), client.ObjectKeyFromObject(object), object)
		w.must(client.IgnoreNotFound(err))
		return apierrors.IsNotFound(err)
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// create makes a DataVolume on a class.
func (w *world) create(name, class string, source *cdiv1.DataVolumeSource, change func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
	w.t.Helper()
	dv := newDataVolume(w.namespace, name)
	dv.Spec.Source, dv.Spec.PVC.StorageClassName = source, new(class)
	if change != nil {
		change(dv)
	}
	w.must(w.Create(w.t.Context(), dv))
	return dv
}

func http() *cdiv1.DataVolumeSource {
	return &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com/disk.qcow2"}}
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

// all is the case's namespace as YAML.
func (w *world) all() string {
	var text strings.Builder
	for _, list := range []client.ObjectList{&cdiv1.DataVolumeList{}, &cdiv1.DataSourceList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}} {
		err := w.List(w.t.Context(), list, client.InNamespace(w.namespace))
		data, encodeErr := yaml.Marshal(list)
		fmt.Fprintf(&text, "--- %T %v %v\n%s", list, err, encodeErr, data)
	}
	return text.String()
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, claim)))
	return claim
}

// pod waits for the importer pod of a DataVolume.
func (w *world) pod(dv string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.until("pod importer-"+dv+" exists", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "importer-" + dv}, pod) == nil
	})
	return pod
}

func (w *world) dv(name string) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, dv))
	return dv
}

func (w *world) phase(name string, want cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	w.t.Helper()
	dv := &cdiv1.DataVolume{}
	w.until(name+" is in phase "+string(want), func() bool {
		dv = w.dv(name)
		return dv.Status.Phase == want
	})
	return dv
}

// bind plays the storage.
func (w *world) bind(name string) {
	w.t.Helper()
	w.until("claim "+name+" exists", func() bool { return w.claim(name).UID != "" })
	claim := w.claim(name)
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Status().Update(w.t.Context(), claim))
}

// play plays the kubelet: the importer's state, and what its last run ended with.
func (w *world) play(dv string, phase corev1.PodPhase, restarts int32, last *transfer.Result) {
	w.t.Helper()
	pod := w.pod(dv)
	pod.Status.Phase = phase
	status := corev1.ContainerStatus{Name: "importer", RestartCount: restarts}
	if last != nil {
		message, err := last.Encode()
		w.must(err)
		ended := &corev1.ContainerStateTerminated{ExitCode: 1, Message: string(message)}
		if phase == corev1.PodSucceeded {
			ended.ExitCode = 0
			status.State.Terminated = ended
		} else {
			status.LastTerminationState.Terminated = ended
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		}
	} else {
		status.State.Running = &corev1.ContainerStateRunning{}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	w.must(w.Status().Update(w.t.Context(), pod))
}

func (w *world) podGone(dv string) {
	w.t.Helper()
	w.until("the pod of "+dv+" is gone", func() bool {
		pod := &corev1.Pod{}
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "importer-" + dv}, pod)
		return apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil
	})
}

func condition(dv *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType) cdiv1.DataVolumeCondition {
	for _, c := range dv.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return cdiv1.DataVolumeCondition{}
}

func importSucceeds(t *testing.T, w *world) {
	w.create("disk", "fast", http(), func(dv *cdiv1.DataVolume) {
		dv.Labels = map[string]string{"instancetype.kubevirt.io/default-preference": "debian"}
		dv.Spec.Preallocation = new(true)
	})
	w.phase("disk", cdiv1.ImportScheduled)
	w.bind("disk")
	w.play("disk", corev1.PodRunning, 0, nil)
	dv := w.phase("disk", cdiv1.ImportInProgress)
	if c := condition(dv, cdiv1.DataVolumeReady); c.Reason != "TransferRunning" {
		t.Errorf("Ready is %+v", c)
	}
	w.play("disk", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:00", DiskSize: 1 << 30})
	dv = w.phase("disk", cdiv1.Succeeded)
	if dv.Status.Progress != "100.0%" || dv.Status.ClaimName != "disk" || dv.Annotations[names.AnnotationDigest] != "slipway1:00" {
		t.Errorf("the DataVolume is %+v", dv)
	}
	claim := w.claim("disk")
	if claim.Annotations[datavolume.AnnotationPreallocated] != "true" {
		t.Errorf("the claim does not say that its disk is preallocated: %v", claim.Annotations)
	}
	if claim.Annotations[names.AnnotationDigest] != "slipway1:00" || claim.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
	w.podGone("disk")
}

func importsLabels(t *testing.T, w *world) {
	from := &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://registry.example.com/debian:12")}}
	const instanceType, preference = "instancetype.kubevirt.io/default-instancetype", "instancetype.kubevirt.io/default-preference"
	w.create("disk", "fast", from, func(dv *cdiv1.DataVolume) { dv.Labels = map[string]string{preference: "mine"} })
	w.bind("disk")
	if args := w.pod("disk").Spec.Containers[0].Args; !slices.Contains(args, "--url=docker://registry.example.com/debian:12") {
		t.Errorf("the importer is told %v", args)
	}
	w.play("disk", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:00", Labels: map[string]string{
		instanceType: "u1.small", preference: "debian", "kubevirt.io/flavor": "cloud",
	}})
	dv := w.phase("disk", cdiv1.Succeeded)
	claim := w.claim("disk")
	if claim.Labels[instanceType] != "u1.small" || claim.Labels[preference] != "mine" || claim.Labels["kubevirt.io/flavor"] != "cloud" {
		t.Errorf("the claim has the labels %v", claim.Labels)
	}
	if dv.Labels[instanceType] != "u1.small" || dv.Labels[preference] != "mine" || dv.Labels["kubevirt.io/flavor"] != "" {
		t.Errorf("the DataVolume has the labels %v", dv.Labels)
	}
}

func importFails(t *testing.T, w *world) {
	w.create("disk", "fast", http(), nil)
	w.bind("disk")
	failed := transfer.Failed(transfer.Errorf(transfer.NotFound, "no such file"))
	w.play("disk", corev1.PodRunning, 1, &failed)
	w.until("the failure is shown", func() bool { return condition(w.dv("disk"), cdiv1.DataVolumeRunning).Reason == "Error" })
	dv := w.phase("disk", cdiv1.ImportInProgress)
	if c := condition(dv, cdiv1.DataVolumeRunning); !strings.Contains(c.Message, "NotFound: no such file") || dv.Status.RestartCount != 1 {
		t.Errorf("Running is %+v after %d restarts", c, dv.Status.RestartCount)
	}
	failed = transfer.Failed(transfer.Errorf(transfer.ChecksumMismatch, "another file"))
	w.play("disk", corev1.PodRunning, 2, &failed)
	dv = w.phase("disk", cdiv1.Failed)
	if c := condition(dv, cdiv1.DataVolumeRunning); !strings.Contains(c.Message, "ChecksumMismatch") {
		t.Errorf("Running is %+v", c)
	}
	w.podGone("disk")
	if dv = w.phase("disk", cdiv1.Failed); condition(dv, cdiv1.DataVolumeReady).Status != corev1.ConditionFalse {
		t.Error("a failed DataVolume is ready")
	}
}

func waitsForConsumer(t *testing.T, w *world) {
	w.create("disk", "local", http(), nil)
	w.phase("disk", cdiv1.WaitForFirstConsumer)
	var pods corev1.PodList
	w.must(w.List(t.Context(), &pods, client.InNamespace(w.namespace)))
	if len(pods.Items) > 0 {
		t.Error("there is a pod before there is a consumer")
	}
	w.bind("disk")
	w.phase("disk", cdiv1.ImportScheduled)
	w.create("now", "local", http(), func(dv *cdiv1.DataVolume) { dv.Annotations = map[string]string{names.AnnotationBind: "true"} })
	w.pod("now")
}

func foreignClaim(t *testing.T, w *world) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	w.must(w.Create(t.Context(), claim))
	w.create("disk", "fast", http(), nil)
	w.waits("disk", "ErrResourceExists")
	dv := w.phase("disk", cdiv1.Pending)
	if c := condition(dv, cdiv1.DataVolumeBound); c.Reason != "ErrResourceExists" || dv.Status.ClaimName != "" {
		t.Errorf("Bound is %+v", c)
	}
	claim = w.claim("disk")
	claim.Annotations = map[string]string{datavolume.AnnotationAdopt: "true"}
	w.must(w.Update(t.Context(), claim))
	w.phase("disk", cdiv1.Succeeded)
	if by := metav1.GetControllerOf(w.claim("disk")); by == nil || by.UID != dv.UID {
		t.Errorf("the claim is owned by %+v", by)
	}
}

func cloneThroughDataSource(t *testing.T, w *world) {
	ref := &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "golden"}
	w.create("clone", "fast", nil, func(dv *cdiv1.DataVolume) { dv.Spec.SourceRef = ref })
	w.phase("clone", cdiv1.Pending)
	w.must(w.Create(t.Context(), &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Name: "golden", Namespace: w.namespace, Labels: map[string]string{"instancetype.kubevirt.io/default-instancetype": "u1.small"}},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: w.namespace, Name: "base"}}},
	}))
	ready := func() cdiv1.DataSourceCondition {
		source := &cdiv1.DataSource{}
		w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "golden"}, source))
		if len(source.Status.Conditions) == 0 {
			return cdiv1.DataSourceCondition{}
		}
		return source.Status.Conditions[0]
	}
	w.until("the DataSource misses its claim", func() bool { return ready().Reason == "NotFound" })
	w.create("base", "fast", http(), nil)
	w.bind("base")
	w.until("the clone waits for its source to be filled", func() bool {
		return condition(w.dv("clone"), cdiv1.DataVolumeBound).Reason == "CloneSourceNotReady"
	})
	w.play("base", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:11"})
	w.until("the DataSource is ready", func() bool { return ready().Status == corev1.ConditionTrue })
	w.phase("clone", cdiv1.CSICloneInProgress)
	claim := w.claim("clone")
	if claim.Spec.DataSource == nil || claim.Spec.DataSource.Name != "base" || claim.Labels["instancetype.kubevirt.io/default-instancetype"] != "u1.small" {
		t.Errorf("the clone's claim is %+v", claim)
	}
	w.bind("clone")
	dv := w.phase("clone", cdiv1.Succeeded)
	if dv.Annotations[names.AnnotationDigest] != "slipway1:11" || dv.Labels["instancetype.kubevirt.io/default-instancetype"] != "u1.small" {
		t.Errorf("the clone is %+v", dv.ObjectMeta)
	}
}

func modesOfTheProfile(t *testing.T, w *world) {
	profile := &cdiv1.StorageProfile{}
	profile.Name = "fast"
	w.must(w.Create(t.Context(), profile))
	t.Cleanup(func() { w.deleted(profile) })
	w.create("disk", "fast", http(), func(dv *cdiv1.DataVolume) {
		dv.Spec.Storage = &cdiv1.StorageSpec{StorageClassName: new("fast"), Resources: dv.Spec.PVC.Resources}
		dv.Spec.PVC = nil
	})
	w.until("it waits for the profile to be made", func() bool {
		c := condition(w.dv("disk"), cdiv1.DataVolumeBound)
		return c.Reason == "Pending" && strings.Contains(c.Message, "StorageProfile fast")
	})
	profile.Status.Conditions = []cdiv1.StorageProfileCondition{{
		Type: cdiv1.StorageProfileRecognized, ConditionState: cdiv1.ConditionState{Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()},
	}}
	w.must(w.Status().Update(t.Context(), profile))
	const words = "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile fast"
	w.until("the DataVolume waits for the profile", func() bool {
		c := condition(w.dv("disk"), cdiv1.DataVolumeBound)
		return c.Reason == "ErrClaimNotValid" && strings.HasPrefix(c.Message, words)
	})
	w.until("an event says so", func() bool {
		var all eventsv1.EventList
		w.must(w.List(t.Context(), &all, client.InNamespace(w.namespace)))
		return slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool {
			return e.Type == corev1.EventTypeWarning && e.Reason == "ErrClaimNotValid" && strings.HasPrefix(e.Note, words)
		})
	})
	profile.Status.ClaimPropertySets = []cdiv1.ClaimPropertySet{{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: new(corev1.PersistentVolumeBlock),
	}}
	w.must(w.Status().Update(t.Context(), profile))
	w.until("the claim exists", func() bool { return w.claim("disk").UID != "" })
	if spec := w.claim("disk").Spec; spec.AccessModes[0] != corev1.ReadWriteMany || *spec.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("the claim asks for %v %v", spec.AccessModes, *spec.VolumeMode)
	}
}

func unsupportedSource(t *testing.T, w *world) {
	w.create("disk", "fast", &cdiv1.DataVolumeSource{Imageio: &cdiv1.DataVolumeSourceImageIO{}}, nil)
	dv := w.phase("disk", cdiv1.Failed)
	if c := condition(dv, cdiv1.DataVolumeRunning); c.Reason != "NotSupported" || !strings.Contains(c.Message, "spec.source.imageio") {
		t.Errorf("Running is %+v", c)
	}
	stream := &cdiv1.DataVolumeSourceRegistry{ImageStream: new("debian"), PullMethod: new(cdiv1.RegistryPullNode)}
	w.create("stream", "fast", &cdiv1.DataVolumeSource{Registry: stream}, nil)
	dv = w.phase("stream", cdiv1.Failed)
	if c := condition(dv, cdiv1.DataVolumeRunning); c.Reason != "NotSupported" || !strings.Contains(c.Message, "no API image.openshift.io") || w.claim("stream").UID != "" {
		t.Errorf("Running is %+v", c)
	}
}

// quotaExceeded has a quota of the namespace allow no claim, and then one.
func quotaExceeded(t *testing.T, w *world) {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "claims"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}
	w.must(w.Create(t.Context(), quota))
	allow := func(claims string) {
		hard := corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse(claims)}
		quota.Spec.Hard = hard
		w.must(w.Update(t.Context(), quota))
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}}
		w.must(w.Status().Update(t.Context(), quota))
	}
	allow("0")
	probe := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}, Spec: *newDataVolume(w.namespace, "probe").Spec.PVC}
	w.until("the quota holds", func() bool { return apierrors.IsForbidden(w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)) })
	w.create("disk", "fast", http(), nil)
	if c := w.waits("disk", "ErrExceededQuota"); !strings.Contains(c.Message, "exceeded quota: claims") {
		t.Errorf("Bound is %+v", c)
	}
	w.phase("disk", cdiv1.Pending)
	allow("1")
	w.until("the claim is made", func() bool { return w.claim("disk").UID != "" })
}
