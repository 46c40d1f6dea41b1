//go:build integration

package modifydataobject_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	createdatavolumefrommanifest "github.com/slipway-vm/slipway/tasks/create-datavolume-from-manifest"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
	modifydataobject "github.com/slipway-vm/slipway/tasks/modify-data-object"
)

const (
	blank = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {name: disk}\n" +
		"spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}\n"
	source = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataSource\nmetadata: {name: golden}\nspec: {source: {pvc: {name: disk}}}\n"
)

// world is a namespace in which the test plays CDI and storage.
type world struct {
	*rehearsal.Stage
	ns string
}

type params = map[string]any

var task, alias = modifydataobject.Task(), createdatavolumefrommanifest.Task()

func TestTask(t *testing.T) {
	stage := rehearsal.Open(t, "../../controllers/hyperconverged/components/crds")
	for _, call := range []string{
		"patch datavolumes", "get pods", "list pods", "watch pods", "create pods", "delete pods",
		"get leases", "list leases", "watch leases", "create leases", "update leases", "delete leases", "watch events", "get configmaps",
	} {
		stage.Unused(t, task, call, "the step cache uses it for imports; tasks/cached tests that")
	}
	for _, call := range []string{"watch persistentvolumeclaims", "delete persistentvolumeclaims"} {
		stage.Unused(t, alias, call, "whether a claim outlives its failed DataVolume is a matter of time; for modify-data-object, whose code it is, it does")
	}
	for name, test := range map[string]func(t *testing.T, w *world){
		"it makes a DataVolume and waits for it":                    makes,
		"it refuses to replace what it may not":                     refusesToReplace,
		"it replaces a DataVolume and its claim":                    replaces,
		"it replaces the source of a DataSource in place":           replacesDataSource,
		"it says why a DataVolume failed":                           saysWhyItFailed,
		"it deletes, and what is gone already is no error":          deletes,
		"the owner is the TaskRun, in its own namespace":            owns,
		"CDI may collect a finished DataVolume":                     collected,
		"wrong parameters are refused in the field's words":         refuses,
		"the earlier task for DataVolumes does what it did":         aliases,
		"a retry makes a DataVolume that failed anew":               retriesFailed,
		"another's DataVolume is never deleted in place of the old": neverAnothers,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, stage, succeed)) })
	}
	t.Run("a task whose pod is killed goes on where it was", func(t *testing.T) { survivesKills(t, stage) })
}

func newWorld(t *testing.T, s *rehearsal.Stage, fill func(*cdiv1.DataVolume)) *world {
	t.Helper()
	w := &world{Stage: s, ns: s.Namespace(t, task, alias)}
	w.playCDI(t, fill)
	w.playStorage(t)
	return w
}

// playCDI gives each DataVolume a claim and the status that fill sets, and takes the claim away with it.
func (w *world) playCDI(t *testing.T, fill func(*cdiv1.DataVolume)) {
	t.Helper()
	volumes, err := w.Client.Watch(t.Context(), &cdiv1.DataVolumeList{}, client.InNamespace(w.ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(volumes.Stop)
	done := map[types.UID]bool{}
	go func() {
		for event := range volumes.ResultChan() {
			volume, ok := event.Object.(*cdiv1.DataVolume)
			if !ok || event.Type == watch.Modified || event.Type == watch.Added && done[volume.UID] {
				continue
			}
			done[volume.UID] = true
			if err := w.settle(t.Context(), event.Type, volume, fill); err != nil && t.Context().Err() == nil {
				t.Errorf("playing CDI for DataVolume %s: %v", volume.Name, err)
			}
		}
	}()
}

func (w *world) settle(ctx context.Context, event watch.EventType, volume *cdiv1.DataVolume, fill func(*cdiv1.DataVolume)) error {
	claim := claimOf(w.ns, volume.Name)
	if event == watch.Deleted {
		var present corev1.PersistentVolumeClaim
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(claim), &present); err != nil {
			return client.IgnoreNotFound(err)
		}
		if len(present.OwnerReferences) == 0 || present.OwnerReferences[0].UID != volume.UID {
			return nil
		}
		return client.IgnoreNotFound(w.Client.Delete(ctx, claim, client.Preconditions{UID: &present.UID}))
	}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: volume.Name, UID: volume.UID, Controller: new(true)}}
	if err := w.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	fill(volume)
	err := w.Client.Status().Update(ctx, volume)
	if apierrors.IsConflict(err) { // it is gone, and another has its name: that one's event is yet to come
		return nil
	}
	return client.IgnoreNotFound(err)
}

// playStorage lets a deleted claim go.
func (w *world) playStorage(t *testing.T) {
	t.Helper()
	claims, err := w.Client.Watch(t.Context(), &corev1.PersistentVolumeClaimList{}, client.InNamespace(w.ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(claims.Stop)
	go func() {
		for event := range claims.ResultChan() {
			claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
			if !ok || event.Type == watch.Deleted || claim.DeletionTimestamp == nil || claim.Annotations["test/busy"] != "" {
				continue
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := w.Client.Patch(t.Context(), claim, patch); client.IgnoreNotFound(err) != nil && t.Context().Err() == nil {
				t.Errorf("letting claim %s go: %v", claim.Name, err)
			}
		}
	}()
}

func claimOf(ns, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func succeed(volume *cdiv1.DataVolume) {
	volume.Status.Phase = cdiv1.Succeeded
	volume.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionTrue}}
}

func (w *world) run(t *testing.T, uid string, p params) rehearsal.Outcome {
	t.Helper()
	return w.Run(t, rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: uid, Params: p})
}

// timesOut runs the task with timeouts that grow until it has come as far as to say what is wanted.
func (w *world) timesOut(t *testing.T, uid string, p params, code int, said string) {
	t.Helper()
	run := func(timeout string) rehearsal.Outcome {
		p["timeout"] = timeout
		return w.run(t, uid, p)
	}
	ended(t, rehearsal.Growing(run, func(o rehearsal.Outcome) bool { return o.Code == code && o.Said(said) }), code, said)
}

func ended(t *testing.T, o rehearsal.Outcome, code int, said string) {
	t.Helper()
	if o.Code != code || said != "" && (o.Err == nil || !strings.Contains(o.Err.Error(), said)) {
		t.Fatalf("the task ended with %d, want %d and %q: %v\n%s", o.Code, code, said, o.Err, o.Log)
	}
}

func (w *world) uid(t *testing.T, object client.Object, name string) types.UID {
	t.Helper()
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, object); err != nil {
		if apierrors.IsNotFound(err) {
			return ""
		}
		t.Fatal(err)
	}
	return object.GetUID()
}

func makes(t *testing.T, w *world) {
	o := w.run(t, "a", params{"manifest": blank, "waitForSuccess": "true"})
	ended(t, o, 0, "")
	if o.Results["name"] != "disk" || o.Results["namespace"] != w.ns {
		t.Errorf("results are %v", o.Results)
	}
	before := w.uid(t, &cdiv1.DataVolume{}, "disk")
	ended(t, w.run(t, "a", params{"manifest": blank, "waitForSuccess": "true", "allowReplace": "true"}), 0, "")
	if w.uid(t, &cdiv1.DataVolume{}, "disk") != before {
		t.Error("a retry made it anew")
	}
	generated := strings.Replace(blank, "name: disk", "generateName: disk-", 1)
	first, second := w.run(t, "b", params{"manifest": generated}), w.run(t, "b", params{"manifest": generated})
	ended(t, first, 0, "")
	if name := first.Results["name"]; !strings.HasPrefix(name, "disk-") || second.Results["name"] != name {
		t.Errorf("made %v, and in a retry %v", first.Results, second.Results)
	}
}

func refusesToReplace(t *testing.T, w *world) {
	ended(t, w.run(t, "a", params{"manifest": blank}), 0, "")
	ended(t, w.run(t, "a", params{"manifest": source}), 0, "")
	volume, golden := w.uid(t, &cdiv1.DataVolume{}, "disk"), w.uid(t, &cdiv1.DataSource{}, "golden")
	ended(t, w.run(t, "b", params{"manifest": blank}), 2, "already exists")
	ended(t, w.run(t, "b", params{"manifest": source}), 2, "already exists")
	if w.uid(t, &cdiv1.DataVolume{}, "disk") != volume || w.uid(t, &cdiv1.DataSource{}, "golden") != golden {
		t.Error("something was replaced")
	}
}

func replaces(t *testing.T, w *world) {
	replace := params{"manifest": blank, "allowReplace": "true", "waitForSuccess": "true"}
	if err := w.Client.Create(t.Context(), claimOf(w.ns, "disk")); err != nil {
		t.Fatal(err)
	}
	alone := w.uid(t, &corev1.PersistentVolumeClaim{}, "disk")
	ended(t, w.run(t, "a", replace), 0, "")
	if w.uid(t, &corev1.PersistentVolumeClaim{}, "disk") == alone {
		t.Error("a claim without a DataVolume was not replaced")
	}
	volume := w.uid(t, &cdiv1.DataVolume{}, "disk")
	ended(t, w.run(t, "b", replace), 0, "")
	if now := w.uid(t, &cdiv1.DataVolume{}, "disk"); now == volume || now == "" {
		t.Errorf("the DataVolume is %q, it was %q", now, volume)
	}
	busy := &corev1.PersistentVolumeClaim{}
	w.uid(t, busy, "disk")
	busy.Annotations = map[string]string{"test/busy": "true"}
	if err := w.Client.Update(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	w.timesOut(t, "c", replace, 2, "timed out waiting for the condition: waited until PersistentVolumeClaim "+w.ns+"/disk is gone, which a pod or VM may still use")
}

func replacesDataSource(t *testing.T, w *world) {
	golden := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "golden", Labels: map[string]string{"kept": "yes"}},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "old", Namespace: w.ns}}},
	}
	if err := w.Client.Create(t.Context(), golden); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"a", "b"} {
		ended(t, w.run(t, uid, params{"manifest": source, "allowReplace": "true"}), 0, "")
		now := &cdiv1.DataSource{}
		if w.uid(t, now, "golden") != golden.UID || now.Spec.Source.Snapshot != nil || now.Spec.Source.PVC == nil || now.Spec.Source.PVC.Name != "disk" || now.Labels["kept"] != "yes" {
			t.Errorf("the DataSource is %+v %+v", now.ObjectMeta, now.Spec)
		}
	}
	changed := strings.Replace(source, "name: disk", "name: other", 1)
	o := w.Run(t, rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "c", Params: params{"manifest": changed, "allowReplace": "true", "waitForSuccess": "true"}, Watching: func() {
		now := &cdiv1.DataSource{}
		w.uid(t, now, "golden")
		now.Status.Conditions = []cdiv1.DataSourceCondition{{Type: cdiv1.DataSourceReady, ConditionState: cdiv1.ConditionState{Status: corev1.ConditionTrue}}}
		if err := w.Client.Update(t.Context(), now); err != nil {
			t.Error(err)
		}
	}})
	ended(t, o, 0, "")
	w.timesOut(t, "d", params{"manifest": strings.Replace(source, "golden", "never", 1), "waitForSuccess": "true"}, 2, "timed out waiting for the condition: DataSource "+w.ns+"/never was last seen without the condition Ready")
}

func saysWhyItFailed(t *testing.T, w *world) {
	wait := params{"manifest": strings.Replace(blank, "name: disk", "name: broken", 1), "waitForSuccess": "true"}
	for name, c := range map[string]struct {
		fill func(*cdiv1.DataVolume)
		said string
	}{
		"failed": {func(v *cdiv1.DataVolume) {
			v.Status.Phase = cdiv1.Failed
			v.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "WrongFormat", Message: "it is a VMDK"}}
		}, "failed: in phase Failed, Running: WrongFormat: it is a VMDK"},
		"restarted too often": {func(v *cdiv1.DataVolume) {
			v.Status.Phase, v.Status.RestartCount = cdiv1.ImportInProgress, 4
			v.Status.Conditions = []cdiv1.DataVolumeCondition{
				{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionTrue},
				{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error", Message: "no such host"},
			}
		}, "failed: in phase ImportInProgress after 4 restarts, Running: Error: no such host"},
		"waits for a consumer": {func(v *cdiv1.DataVolume) { v.Status.Phase = cdiv1.WaitForFirstConsumer }, "was last seen in phase WaitForFirstConsumer (no pod uses its claim"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, w.Stage, c.fill)
			w.timesOut(t, "a", wait, 2, c.said)
		})
	}
}

func deletes(t *testing.T, w *world) {
	ended(t, w.run(t, "a", params{"manifest": blank, "waitForSuccess": "true"}), 0, "")
	ended(t, w.run(t, "a", params{"manifest": source}), 0, "")
	if err := w.Client.Create(t.Context(), claimOf(w.ns, "claim")); err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{"DataVolume": "disk", "DataSource": "golden", "PersistentVolumeClaim": "claim"} {
		for range 2 {
			o := w.run(t, "b", params{"deleteObject": "true", "deleteObjectKind": kind, "deleteObjectName": name})
			ended(t, o, 0, "")
			if o.Results["name"] != name || o.Results["namespace"] != w.ns {
				t.Errorf("results are %v", o.Results)
			}
		}
	}
	if w.uid(t, &cdiv1.DataVolume{}, "disk")+w.uid(t, &cdiv1.DataSource{}, "golden")+w.uid(t, &corev1.PersistentVolumeClaim{}, "claim") != "" {
		t.Error("something is left")
	}
	busy := claimOf(w.ns, "busy")
	busy.Annotations = map[string]string{"test/busy": "true"}
	if err := w.Client.Create(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	w.timesOut(t, "c", params{"deleteObject": "true", "deleteObjectKind": "PersistentVolumeClaim", "deleteObjectName": "busy"}, 4, "is gone, which a pod or VM may still use")
}

func owns(t *testing.T, w *world) {
	ended(t, w.run(t, "uid-of-run", params{"manifest": blank, "setOwnerReference": "true"}), 0, "")
	made := &cdiv1.DataVolume{}
	w.uid(t, made, "disk")
	if len(made.OwnerReferences) != 1 || made.OwnerReferences[0].Kind != "TaskRun" || made.OwnerReferences[0].Name != "run" || made.OwnerReferences[0].UID != "uid-of-run" {
		t.Errorf("the owners are %v", made.OwnerReferences)
	}
	ended(t, w.run(t, "x", params{"manifest": blank, "setOwnerReference": "true", "namespace": "default"}), 255, "cannot own an object in namespace default")
}

func collected(t *testing.T, w *world) {
	ended(t, w.run(t, "a", params{"manifest": blank, "waitForSuccess": "true"}), 0, "")
	made, claim := &cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}
	w.uid(t, made, "disk")
	w.uid(t, claim, "disk")
	claim.OwnerReferences, claim.Labels = nil, made.Labels // as CDI does before it collects the DataVolume
	if err := w.Client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	ended(t, w.run(t, "a", params{"manifest": blank, "waitForSuccess": "true", "allowReplace": "true"}), 0, "")
	if w.uid(t, &corev1.PersistentVolumeClaim{}, "disk") != claim.UID || w.uid(t, made, "disk") != "" {
		t.Error("a retry made the disk of its earlier try anew")
	}

	during := newWorld(t, w.Stage, func(*cdiv1.DataVolume) {})
	o := during.Run(t, rehearsal.Run{Task: task, Namespace: during.ns, Name: "run", UID: "b", Params: params{"manifest": blank, "waitForSuccess": "true"}, Watching: func() {
		during.Eventually(t, "the claim is made", claimOf(during.ns, "disk"), func() bool { return true })
		claim := &corev1.PersistentVolumeClaim{}
		during.uid(t, claim, "disk")
		claim.OwnerReferences = nil
		if err := during.Client.Update(t.Context(), claim); err != nil {
			t.Error(err)
		}
		if err := during.Client.Delete(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: during.ns, Name: "disk"}}); err != nil {
			t.Error(err)
		}
	}})
	ended(t, o, 0, "")

	deleted := newWorld(t, w.Stage, func(*cdiv1.DataVolume) {})
	o = deleted.Run(t, rehearsal.Run{Task: task, Namespace: deleted.ns, Name: "run", UID: "c", Params: params{"manifest": blank, "waitForSuccess": "true"}, Watching: func() {
		if err := deleted.Client.Delete(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: deleted.ns, Name: "disk"}}); err != nil {
			t.Error(err)
		}
	}})
	ended(t, o, 2, "was deleted")
}

func refuses(t *testing.T, w *world) {
	remove := func(kind, name string) params {
		return params{"deleteObject": "true", "deleteObjectKind": kind, "deleteObjectName": name}
	}
	for said, p := range map[string]params{
		"data-object-manifest param has to be specified":                                                                {},
		"could not read data object manifest":                                                                           {"manifest": "metadata: {name: malformed}"},
		"could not identify data object, wrong group or kind: v1 Pod":                                                   {"manifest": "apiVersion: v1\nkind: Pod\n"},
		"invalid: metadata.name: Required value: name":                                                                  {"manifest": strings.Replace(blank, "{name: disk}", "{}", 1)},
		"delete-object-kind param has to be specified":                                                                  remove("", "x"),
		"delete-object-name param has to be specified":                                                                  remove("DataSource", ""),
		`delete-object-kind param has to have values DataVolume or DataSource, or PersistentVolumeClaim: "Pod"`:         remove("Pod", "x"),
		`waitForSuccess: "yes" is neither "true" nor "false"`:                                                           {"manifest": blank, "waitForSuccess": "yes"},
		`allowReplace: "1" is neither`:                                                                                  {"manifest": blank, "allowReplace": "1"},
		`setOwnerReference: "TRUE" is neither`:                                                                          {"manifest": blank, "setOwnerReference": "TRUE"},
		`timeout: "never" is no duration above zero`:                                                                    {"manifest": blank, "timeout": "never"},
		`could not read data object manifest: error unmarshaling JSON: while decoding JSON: json: unknown field "spce"`: {"manifest": strings.Replace(blank, "spec:", "spce:", 1)},
	} {
		ended(t, w.run(t, "a", p), 255, said)
	}
}

func aliases(t *testing.T, w *world) {
	run := func(uid string, p params) rehearsal.Outcome {
		return w.Run(t, rehearsal.Run{Task: alias, Namespace: w.ns, Name: "run", UID: uid, Params: p})
	}
	o := run("a", params{"manifest": blank, "waitForSuccess": "true"})
	ended(t, o, 0, "")
	if o.Results["name"] != "disk" || o.Results["namespace"] != w.ns {
		t.Errorf("results are %v", o.Results)
	}
	ended(t, run("b", params{"manifest": blank}), 2, "already exists")
	ended(t, run("c", params{"manifest": source}), 255, "could not identify data object, wrong group or kind")
	failAndRetry(t, w.Stage, alias)
}

// failAndRetry lets a DataVolume fail, and its retry succeed.
func failAndRetry(t *testing.T, s *rehearsal.Stage, task *declare.Task) {
	t.Helper()
	fail := true
	w := newWorld(t, s, func(v *cdiv1.DataVolume) {
		if succeed(v); fail {
			v.Status.Phase = cdiv1.Failed
		}
	})
	run := rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "a", Params: params{"manifest": blank, "waitForSuccess": "true"}}
	ended(t, w.Run(t, run), 2, "failed")
	fail = false
	ended(t, w.Run(t, run), 0, "")
}

func retriesFailed(t *testing.T, w *world) { failAndRetry(t, w.Stage, task) }

// Between the end of the old DataVolume and the new one another run may make its own.
func neverAnothers(t *testing.T, w *world) {
	ended(t, w.run(t, "old", params{"manifest": blank, "waitForSuccess": "true"}), 0, "")
	claim := &corev1.PersistentVolumeClaim{}
	w.uid(t, claim, "disk")
	claim.Annotations = map[string]string{"test/busy": "true"}
	if err := w.Client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	o := w.Run(t, rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "mine", Params: params{"manifest": blank, "allowReplace": "true"}, Watching: func() {
		w.Eventually(t, "the old claim ends", claim, func() bool { return claim.DeletionTimestamp != nil })
		another := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "disk", Labels: map[string]string{"whose": "another"}}}
		another.Spec.Source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
		if err := w.Client.Create(t.Context(), another); err != nil {
			t.Error(err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"test/busy":null},"finalizers":null}}`))
		if err := w.Client.Patch(t.Context(), claim, patch); err != nil {
			t.Error(err)
		}
	}})
	ended(t, o, 2, "already exists")
	left := &cdiv1.DataVolume{}
	if w.uid(t, left, "disk"); left.Labels["whose"] != "another" {
		t.Errorf("another's DataVolume is gone: %+v", left.ObjectMeta)
	}
}

func survivesKills(t *testing.T, s *rehearsal.Stage) {
	var w *world
	fresh := func(task *declare.Task, p params, before ...string) func(*testing.T) rehearsal.Run {
		return func(t *testing.T) rehearsal.Run {
			w = newWorld(t, s, succeed)
			for _, manifest := range before {
				ended(t, w.run(t, "before", params{"manifest": manifest, "waitForSuccess": "false"}), 0, "")
			}
			return rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "uid-of-run", Params: p}
		}
	}
	one := func(t *testing.T, _ rehearsal.Run, o rehearsal.Outcome) {
		ended(t, o, 0, "")
		var volumes cdiv1.DataVolumeList
		var sources cdiv1.DataSourceList
		for _, list := range []client.ObjectList{&volumes, &sources} {
			if err := w.Client.List(t.Context(), list, client.InNamespace(w.ns)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(volumes.Items) + len(sources.Items); n != 1 {
			t.Fatalf("there are %d objects", n)
		}
		for _, volume := range volumes.Items {
			if volume.Name != o.Results["name"] || volume.Labels["slipway-vm.github.io/taskrun-uid"] != "uid-of-run" || volume.Status.Phase != cdiv1.Succeeded {
				t.Errorf("the DataVolume is %+v %s", volume.ObjectMeta, volume.Status.Phase)
			}
		}
		for _, s := range sources.Items {
			if s.Spec.Source.PVC == nil || s.Spec.Source.PVC.Name != "disk" {
				t.Errorf("the DataSource is %+v", s.Spec)
			}
		}
	}
	none := func(t *testing.T, _ rehearsal.Run, o rehearsal.Outcome) {
		ended(t, o, 0, "")
		if uid := w.uid(t, &cdiv1.DataVolume{}, "disk"); uid != "" {
			t.Errorf("DataVolume %s is left", uid)
		}
	}
	wait := func(manifest, replace string) params {
		return params{"manifest": manifest, "allowReplace": replace, "waitForSuccess": "true"}
	}
	generated := strings.Replace(blank, "name: disk", "generateName: disk-", 1)
	s.Killed(t, fresh(task, wait(blank, "false")), one)
	s.Killed(t, fresh(task, wait(generated, "false")), one)
	s.Killed(t, fresh(task, wait(blank, "true"), blank), one)
	s.Killed(t, fresh(alias, params{"manifest": generated, "waitForSuccess": "true"}), one)
	s.Killed(t, fresh(task, params{"manifest": source, "allowReplace": "true"}, strings.Replace(source, "disk", "old", 1)), one)
	s.Killed(t, fresh(task, params{"manifest": source}), one)
	s.Killed(t, fresh(task, params{"deleteObject": "true", "deleteObjectKind": "DataVolume", "deleteObjectName": "disk"}, blank), none)
}
