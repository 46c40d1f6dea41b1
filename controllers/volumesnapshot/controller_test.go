//go:build integration

package volumesnapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/volumesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

const (
	labelManagedBy    = "snapshot.storage.kubernetes.io/managed-by"
	annotationDefault = "snapshot.storage.kubernetes.io/is-default-class"
	annotationDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	finalizerClaim    = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	finalizerContent  = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
)

// TestController runs the controller against a real API server, which has no driver and
// no volume controller: the tests write what these would.
func TestController(t *testing.T) {
	c := start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, cluster)
	}{
		{"a snapshot waits for its claim, is taken on its node, and is reported", waitsAndIsTaken},
		{"what the driver says is told, and forgotten when it is past", tellsTheDriversError},
		{"a claim that cannot have a snapshot is told why", refusesClaims},
		{"a class is chosen, or asked for", choosesClass},
		{"a claim stays while its snapshot is taken, and may go after", guardsClaim},
		{"a volume is taken where it is", findsNode},
		{"a driver gets the secret of its class", passesSecret},
		{"a snapshot goes after its content", goesAfterContent},
		{"a snapshot stays while a claim is made from it", staysWhileRestored},
		{"a content that is to be kept is kept", keepsContent},
		{"a content made by hand is bound", bindsByHand},
		{"a content that is gone is missed, and not made again", missesContent},
		{"nothing is written where nothing changed", writesNothing},
		{"definitions of another end it, and its own bring it back", yields},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

func waitsAndIsTaken(t *testing.T, c cluster) {
	snapshot := c.snapshot(t, "taken", "data", nil)
	c.failed(t, snapshot, "SnapshotContentCreationFailed", "claim data does not exist in namespace default")
	claim := c.claim(t, "data", nil)
	c.failed(t, snapshot, "SnapshotContentCreationFailed", "claim data has no volume yet")
	c.bind(t, claim, nil)
	content := c.content(t, snapshot)
	if content.Labels[labelManagedBy] != "node-1" || *content.Spec.Source.VolumeHandle != "pvc-data" || content.Spec.Driver != names.HostPathDriver ||
		*content.Spec.VolumeSnapshotClassName != "default-class" || *content.Spec.SourceVolumeMode != corev1.PersistentVolumeFilesystem ||
		!controllerutil.ContainsFinalizer(content, finalizerContent) || content.Spec.VolumeSnapshotRef.UID != snapshot.UID {
		t.Errorf("the content is %+v", content)
	}
	c.taken(t, content)
	c.ready(t, snapshot)
	if snapshot.Status.RestoreSize.String() != "1Gi" || snapshot.Status.CreationTime.Unix() != 1700000000 || snapshot.Status.Error != nil ||
		*snapshot.Status.BoundVolumeSnapshotContentName != content.Name || *snapshot.Spec.VolumeSnapshotClassName != "default-class" {
		t.Errorf("the status is %+v", snapshot.Status)
	}
	c.event(t, snapshot, "SnapshotReady", "ready to use")
}

func tellsTheDriversError(t *testing.T, c cluster) {
	c.bind(t, c.claim(t, "failing", nil), nil)
	snapshot := c.snapshot(t, "failing", "failing", nil)
	content := c.content(t, snapshot)
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{
		ReadyToUse: new(false), Error: &snapshotv1.VolumeSnapshotError{Time: new(metav1.Now()), Message: new("the pool is full")},
	}
	check(t, c.Status().Update(t.Context(), content))
	c.failed(t, snapshot, "SnapshotCreationFailed", "the pool is full")
	c.taken(t, content)
	c.ready(t, snapshot)
	if snapshot.Status.Error != nil {
		t.Errorf("the error stays: %+v", snapshot.Status.Error)
	}
}

func refusesClaims(t *testing.T, c cluster) {
	other := func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "other.example.com" }
	c.bind(t, c.claim(t, "other-driver", nil), other)
	c.failed(t, c.snapshot(t, "other-driver", "other-driver", new("default-class")), "SnapshotContentCreationFailed",
		"claim other-driver is of driver other.example.com, VolumeSnapshotClass default-class of driver "+names.HostPathDriver)
	c.bind(t, c.claim(t, "no-csi", nil), func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}
	})
	c.failed(t, c.snapshot(t, "no-csi", "no-csi", nil), "SnapshotContentCreationFailed", "is not of a CSI driver")
	lost := c.claim(t, "lost", nil)
	lost.Status.Phase = corev1.ClaimLost
	check(t, c.Status().Update(t.Context(), lost))
	c.failed(t, c.snapshot(t, "lost", "lost", nil), "SnapshotContentCreationFailed", "claim lost has lost its volume")
}

func choosesClass(t *testing.T, c cluster) {
	c.bind(t, c.claim(t, "of-third", nil), func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "third.example.com" })
	snapshot := c.snapshot(t, "of-third", "of-third", nil)
	c.failed(t, snapshot, "SetDefaultSnapshotClassFailed", "no VolumeSnapshotClass is the default of driver third.example.com")
	c.failed(t, c.snapshot(t, "of-no-class", "of-third", new("none")), "GetSnapshotClassFailed", "VolumeSnapshotClass none does not exist")
	first, second := class("third-a", "third.example.com"), class("third-b", "third.example.com")
	check(t, c.Create(t.Context(), second))
	content := c.content(t, snapshot)
	if *content.Spec.VolumeSnapshotClassName != "third-b" {
		t.Errorf("the class is %s", *content.Spec.VolumeSnapshotClassName)
	}
	check(t, c.Create(t.Context(), first))
	attempt := 0
	var last *snapshotv1.VolumeSnapshot
	eventually(t, "the controller knows the second class", func() bool { // which it hears of in its own time
		attempt++
		last = c.snapshot(t, fmt.Sprintf("of-two-%d", attempt), "of-third", nil)
		eventually(t, last.Name+" has a status", func() bool {
			check(t, c.Get(t.Context(), client.ObjectKeyFromObject(last), last))
			return last.Status != nil
		})
		return last.Status.Error != nil
	})
	c.failed(t, last, "SetDefaultSnapshotClassFailed", "third-a and third-b are both the default")
}

func guardsClaim(t *testing.T, c cluster) {
	claim := c.claim(t, "guarded", nil)
	c.bind(t, claim, nil)
	first, second := c.snapshot(t, "guarded-1", "guarded", nil), c.snapshot(t, "guarded-2", "guarded", nil)
	contents := []*snapshotv1.VolumeSnapshotContent{c.content(t, first), c.content(t, second)}
	check(t, c.Delete(t.Context(), claim))
	held := func() bool {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		return err == nil && controllerutil.ContainsFinalizer(claim, finalizerClaim)
	}
	c.taken(t, contents[0])
	c.ready(t, first)
	if !held() {
		t.Error("the claim is gone while a snapshot of it is taken")
	}
	c.taken(t, contents[1])
	c.ready(t, second)
	eventually(t, "the claim is let go", func() bool { return !held() })
	c.ready(t, first)
	if first.Status.Error != nil {
		t.Errorf("the snapshot suffers from the end of its source: %+v", first.Status)
	}
}

func findsNode(t *testing.T, c cluster) {
	c.bind(t, c.claim(t, "everywhere", nil), func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil })
	if content := c.content(t, c.snapshot(t, "everywhere", "everywhere", nil)); content.Labels[labelManagedBy] != "" {
		t.Errorf("the labels are %v", content.Labels)
	}
	c.bind(t, c.claim(t, "second", nil), on("node-2"))
	if content := c.content(t, c.snapshot(t, "second", "second", nil)); content.Labels[labelManagedBy] != "node-2" {
		t.Errorf("the labels are %v", content.Labels)
	}
	c.bind(t, c.claim(t, "nowhere", nil), on("node-9"))
	c.failed(t, c.snapshot(t, "nowhere", "nowhere", nil), "SnapshotContentCreationFailed", "is on a node that the cluster does not have")
}

func passesSecret(t *testing.T, c cluster) {
	secret := class("with-secret", names.HostPathDriver)
	secret.Annotations = nil
	secret.Parameters = map[string]string{
		"csi.storage.k8s.io/snapshotter-secret-name":      "secret-of-${volumesnapshot.name}",
		"csi.storage.k8s.io/snapshotter-secret-namespace": "${volumesnapshot.namespace}",
	}
	check(t, c.Create(t.Context(), secret))
	c.bind(t, c.claim(t, "secret", nil), nil)
	content := c.content(t, c.snapshot(t, "secret", "secret", &secret.Name))
	if content.Annotations["snapshot.storage.kubernetes.io/deletion-secret-name"] != "secret-of-secret" ||
		content.Annotations["snapshot.storage.kubernetes.io/deletion-secret-namespace"] != "default" {
		t.Errorf("the annotations are %v", content.Annotations)
	}
}

func goesAfterContent(t *testing.T, c cluster) {
	snapshot, content := c.living(t, "going")
	check(t, c.Delete(t.Context(), snapshot))
	eventually(t, "the content is being deleted, and its driver told", func() bool {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
		return content.DeletionTimestamp != nil && content.Annotations[annotationDeleted] == "yes"
	})
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot))
	c.letGo(t, content)
	c.gone(t, snapshot)
}

func staysWhileRestored(t *testing.T, c cluster) {
	snapshot, content := c.living(t, "restored")
	restore := c.claim(t, "restore", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "restored"}
	})
	check(t, c.Delete(t.Context(), snapshot))
	c.event(t, snapshot, "SnapshotDeletePending", "Claim restore is made from the snapshot")
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
	if content.DeletionTimestamp != nil || content.Annotations[annotationDeleted] != "" {
		t.Error("the content goes while a claim is made from it")
	}
	c.bind(t, restore, nil)
	eventually(t, "the content is being deleted", func() bool {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
		return content.DeletionTimestamp != nil
	})
	c.letGo(t, content)
	c.gone(t, snapshot)
}

func keepsContent(t *testing.T, c cluster) {
	kept := class("kept", names.HostPathDriver)
	kept.Annotations, kept.DeletionPolicy = nil, snapshotv1.VolumeSnapshotContentRetain
	check(t, c.Create(t.Context(), kept))
	c.bind(t, c.claim(t, "kept", nil), nil)
	snapshot := c.snapshot(t, "kept", "kept", &kept.Name)
	content := c.content(t, snapshot)
	c.taken(t, content)
	c.ready(t, snapshot)
	check(t, c.Delete(t.Context(), snapshot))
	c.gone(t, snapshot)
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
	if content.DeletionTimestamp != nil || content.Annotations[annotationDeleted] != "yes" {
		t.Errorf("the content is %+v", content.ObjectMeta)
	}
}

func bindsByHand(t *testing.T, c cluster) {
	snapshot := c.byHand(t, "by-hand", "made")
	c.failed(t, snapshot, "SnapshotContentMissing", "VolumeSnapshotContent made does not exist")
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "made"},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "by-hand"}, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			Driver: names.HostPathDriver, Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("snapshot-1")},
		},
	}
	check(t, c.Create(t.Context(), content))
	eventually(t, "the content is bound", func() bool {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
		return content.Spec.VolumeSnapshotRef.UID == snapshot.UID && controllerutil.ContainsFinalizer(content, finalizerContent)
	})
	c.event(t, snapshot, "SnapshotContentUnclaimed", "snapshot handle snapshot-1")
	c.taken(t, content)
	c.ready(t, snapshot)
	c.failed(t, c.byHand(t, "another", "made"), "SnapshotContentMisbound", "is for another VolumeSnapshot, default/by-hand")
	_, dynamic := c.living(t, "dynamic")
	c.failed(t, c.byHand(t, "of-dynamic", dynamic.Name), "SnapshotContentMismatch", "was made for another kind of snapshot")
}

func missesContent(t *testing.T, c cluster) {
	snapshot, content := c.living(t, "missed")
	check(t, c.Delete(t.Context(), content))
	c.letGo(t, content)
	c.failed(t, snapshot, "SnapshotContentMissing", "is gone, and with it what is known of the data")
	if *snapshot.Status.ReadyToUse {
		t.Error("the snapshot is ready without its content")
	}
	check(t, c.Delete(t.Context(), snapshot))
	c.gone(t, snapshot)
}

func writesNothing(t *testing.T, c cluster) {
	idle, content := c.living(t, "idle")
	failing := c.snapshot(t, "idle-failing", "no-such-claim", nil)
	c.failed(t, failing, "SnapshotContentCreationFailed", "does not exist")
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
	content.Labels["touched"] = "yes"
	check(t, c.Update(t.Context(), content)) // which has the snapshot looked at again
	c.living(t, "after-idle")
	for _, object := range []client.Object{idle, failing, content} {
		before := object.GetResourceVersion()
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		if object.GetResourceVersion() != before {
			t.Errorf("%s was written: %+v", object.GetName(), object)
		}
	}
}

func yields(t *testing.T, c cluster) {
	c.own(t, "another")
	c.bind(t, c.claim(t, "yielded", nil), nil)
	snapshot := c.snapshot(t, "yielded", "yielded", nil)
	quiet := time.NewTimer(time.Second)
	defer quiet.Stop()
	<-quiet.C
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot))
	if snapshot.Status != nil || len(snapshot.Finalizers) > 0 {
		t.Errorf("it was acted on: %+v", snapshot)
	}
	c.broken.Store(true)
	c.own(t, names.ManagedBy)
	c.broken.Store(false)
	c.own(t, "another") // which ends the wait for another try, too
	c.own(t, names.ManagedBy)
	c.content(t, snapshot)
}

// cluster is an API server with the controller.
type cluster struct {
	client.Client
	served *atomic.Int32 // how often the kinds were found
	broken *atomic.Bool  // what works with them cannot be set up
}

func start(t *testing.T) cluster {
	t.Helper()
	need.APIServer(t)
	server := &envtest.Environment{Scheme: scheme.New(), ErrorIfCRDPathMissing: true}
	for _, kind := range []string{"classes", "contents", "s"} {
		server.CRDDirectoryPaths = append(server.CRDDirectoryPaths,
			filepath.Join("..", "hyperconverged", "components", "crds", "snapshot.storage.k8s.io_volumesnapshot"+kind+".yaml"))
	}
	config, err := apiserver.Begin(server)
	check(t, err)
	t.Cleanup(func() { check(t, server.Stop()) })
	logger := testr.New(t)
	c := cluster{served: &atomic.Int32{}, broken: &atomic.Bool{}}
	c.Client = apiserver.Player(t, config)
	for _, name := range []string{"node-1", "node-2"} {
		check(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.TopologyNode: name}}}))
	}
	check(t, c.Create(t.Context(), class("default-class", names.HostPathDriver)))
	manager, err := ctrl.NewManager(asComponent(t, server, c.Client, "virt-controller"), ctrl.Options{Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logger, GracefulShutdownTimeout: new(time.Duration(-1))})
	check(t, err)
	check(t, volumesnapshot.SetupWithManager(manager, volumesnapshot.Options{
		WhereServed: func(ctrl.Manager) error {
			c.served.Add(1)
			if c.broken.Load() {
				return errors.New("the test breaks it")
			}
			return nil
		},
	}))
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(t.Context(), logger))
	done := make(chan error)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-done) })
	return c
}

// asComponent is the access of one of Slipway's components, with the rights that the operator gives it.
func asComponent(t *testing.T, server *envtest.Environment, c client.Client, component string) *rest.Config {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "hyperconverged", "components", component, "rbac.yaml"))
	check(t, err)
	role := &rbacv1.ClusterRole{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			check(t, yaml.UnmarshalStrict([]byte(document), role))
		}
	}
	if len(role.Rules) == 0 {
		t.Fatalf("component %s has no rules", component)
	}
	check(t, c.Create(t.Context(), role))
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: component}},
	}
	binding.Name = component
	check(t, c.Create(t.Context(), binding))
	user, err := server.AddUser(envtest.User{Name: component}, nil)
	check(t, err)
	return user.Config()
}

// own says whose the definitions are, and waits until the controller knows.
func (c cluster) own(t *testing.T, owner string) {
	t.Helper()
	before := c.served.Load()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	check(t, c.Get(t.Context(), client.ObjectKey{Name: "volumesnapshots.snapshot.storage.k8s.io"}, definition))
	definition.Labels[names.LabelManagedBy] = owner
	check(t, c.Update(t.Context(), definition))
	eventually(t, "the change of hands is seen", func() bool { return c.served.Load() > before })
}

func class(name, driver string) *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationDefault: "true"}},
		Driver:     driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}

func (c cluster) claim(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("hostpath-csi"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(claim)
	}
	check(t, c.Create(t.Context(), claim))
	return claim
}

func on(node string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyNode, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
}

// bind gives a claim a volume on node-1.
func (c cluster) bind(t *testing.T, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolume)) {
	t.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + claim.Name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            claim.Spec.AccessModes,
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: names.HostPathDriver, VolumeHandle: "pvc-" + claim.Name}},
		},
	}
	on("node-1")(volume)
	if change != nil {
		change(volume)
	}
	check(t, c.Create(t.Context(), volume))
	claim.Spec.VolumeName = volume.Name
	check(t, c.Update(t.Context(), claim))
	claim.Status.Phase = corev1.ClaimBound
	check(t, c.Status().Update(t.Context(), claim))
}

func (c cluster) snapshot(t *testing.T, name, claim string, class *string) *snapshotv1.VolumeSnapshot {
	t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}, VolumeSnapshotClassName: class},
	}
	check(t, c.Create(t.Context(), snapshot))
	return snapshot
}

func (c cluster) byHand(t *testing.T, name, content string) *snapshotv1.VolumeSnapshot {
	t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &content}},
	}
	check(t, c.Create(t.Context(), snapshot))
	return snapshot
}

// content waits for the content that is made for a snapshot.
func (c cluster) content(t *testing.T, snapshot *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotContent {
	t.Helper()
	content := &snapshotv1.VolumeSnapshotContent{}
	eventually(t, snapshot.Name+" has a content", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Name: "snapcontent-" + string(snapshot.UID)}, content) == nil
	})
	return content
}

// taken does what the driver's part does.
func (c cluster) taken(t *testing.T, content *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{
		SnapshotHandle: new("snapshot-of-" + content.Name), ReadyToUse: new(true),
		CreationTime: new(int64(1700000000_123456789)), RestoreSize: new(int64(1 << 30)),
	}
	check(t, c.Status().Update(t.Context(), content))
}

// letGo removes a content's finalizer, as the driver's part does when the data is gone.
func (c cluster) letGo(t *testing.T, content *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(content), content))
	content.Finalizers = nil
	check(t, c.Update(t.Context(), content))
}

// living is a snapshot that is ready, and its content.
func (c cluster) living(t *testing.T, name string) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	c.bind(t, c.claim(t, name, nil), nil)
	snapshot := c.snapshot(t, name, name, nil)
	content := c.content(t, snapshot)
	c.taken(t, content)
	c.ready(t, snapshot)
	return snapshot, content
}

func (c cluster) ready(t *testing.T, snapshot *snapshotv1.VolumeSnapshot) {
	t.Helper()
	eventually(t, snapshot.Name+" is ready", func() bool {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot))
		return snapshot.Status != nil && ptr.Deref(snapshot.Status.ReadyToUse, false)
	})
}

// failed waits until status and an event tell what is wrong.
func (c cluster) failed(t *testing.T, snapshot *snapshotv1.VolumeSnapshot, reason, text string) {
	t.Helper()
	eventually(t, snapshot.Name+" has the error "+text, func() bool {
		check(t, c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot))
		return snapshot.Status != nil && snapshot.Status.Error != nil && strings.Contains(*snapshot.Status.Error.Message, text)
	})
	c.event(t, snapshot, reason, text)
}

func (c cluster) event(t *testing.T, snapshot *snapshotv1.VolumeSnapshot, reason, text string) {
	t.Helper()
	eventually(t, snapshot.Name+" has an event "+reason+" with "+text, func() bool {
		var events corev1.EventList
		check(t, c.List(t.Context(), &events))
		for _, event := range events.Items {
			if event.InvolvedObject.UID == snapshot.UID && event.Reason == reason && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}

func (c cluster) gone(t *testing.T, snapshot *snapshotv1.VolumeSnapshot) {
	t.Helper()
	eventually(t, snapshot.Name+" is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot))
	})
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
