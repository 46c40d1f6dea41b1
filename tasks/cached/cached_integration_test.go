//go:build integration

package cached_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
	restorestepcache "github.com/slipway-vm/slipway/tasks/restore-step-cache"
)

// newVolume is a DataVolume that imports a disk.
func newVolume(name, url string) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}},
			PVC: &corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: new(corev1.PersistentVolumeFilesystem),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	}
}

// stage is a node with two tasks round the cache: one appends its commands to a disk, one imports.
type stage struct {
	*rehearsal.Stage
	*node
	change, fetch, restore *declare.Task
	// worked is how often the tool ran.
	worked atomic.Int32
	// block says that the claims' disks are devices.
	block bool
	// tool replaces what the tool does.
	tool func(ctx context.Context, disk, commands string) error
}

func open(t *testing.T) *rehearsal.Stage {
	t.Helper()
	return rehearsal.Open(t, "../../controllers/hyperconverged/components/crds")
}

func newStage(t *testing.T, r *rehearsal.Stage) *stage {
	t.Helper()
	s := &stage{Stage: r, tool: appendCommands}
	s.change = &declare.Task{
		Name: "change-disk", Image: declare.Guestfs, Results: cached.Results(), Rules: append(cached.Rules(), cached.DiskRule()),
		Params: append([]declare.Param{{Name: "pvc", Required: true}, {Name: "virtCommands"}}, cached.Params()...),
		Run: func(ctx context.Context, call *declare.Call) error {
			disk := s.disk(call.String("pvc"))
			step := cached.DiskStep{Tool: "virt-customize", Commands: call.String("virtCommands"), Disk: disk, Claim: call.String("pvc"), Block: s.block}
			return cached.Disk(ctx, call, step, func(ctx context.Context) error {
				s.worked.Add(1)
				return s.tool(ctx, disk, call.String("virtCommands"))
			})
		},
	}
	s.fetch = &declare.Task{
		Name: "fetch-disk", Image: declare.Slipway, Results: cached.Results(),
		Rules:  append(cached.Rules(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch"}}),
		Params: append([]declare.Param{{Name: "name", Required: true}}, cached.Params()...),
		Run: func(ctx context.Context, call *declare.Call) error {
			dv := newVolume(call.String("name"), s.server.URL)
			dv.Namespace = call.Namespace
			_, err := cached.Import(ctx, call, dv, func(ctx context.Context, dv *cdiv1.DataVolume) (*cdiv1.DataVolume, error) {
				if err := call.Client.Create(ctx, dv); err != nil {
					return nil, err
				}
				return dv, cached.Store(call).AwaitClone(ctx, dv)
			})
			return err
		},
	}
	s.restore = restorestepcache.Task()
	for _, task := range []*declare.Task{s.change, s.fetch} {
		r.Unused(t, task, "update leases", "a Lease is renewed after 15 s; internal/stepcache tests what holds it")
	}
	for _, call := range []string{"list leases", "watch leases"} {
		r.Unused(t, s.fetch, call, "change-disk shows two runs at the same moment")
	}
	s.node = newNode(t, r.Client, r.Namespace(t, s.change, s.fetch, s.restore))
	return s
}

// appendCommands is a tool whose work can be seen.
func appendCommands(ctx context.Context, disk, commands string) error {
	if ctx.Err() != nil {
		return ctx.Err() // as a program is not started then
	}
	file, err := os.OpenFile(disk, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("\n" + commands)
	return errors.Join(err, file.Close())
}

var runs atomic.Int32

// runs runs a task once as a TaskRun of its own.
func (s *stage) run(task *declare.Task, params map[string]any) rehearsal.Outcome {
	s.t.Helper()
	uid := fmt.Sprintf("uid-%d", runs.Add(1))
	return s.Run(s.t, rehearsal.Run{Task: task, Namespace: s.namespace, Name: "run-" + uid, UID: uid, Params: params})
}

// succeeds runs a task that has to and returns its results.
func (s *stage) succeeds(task *declare.Task, params map[string]any) map[string]string {
	s.t.Helper()
	o := s.run(task, params)
	if o.Err != nil {
		s.t.Fatalf("%s: %v\n%s", task.Name, o.Err, o.Log)
	}
	return o.Results
}

// expect makes sure that each of the results is as wanted.
func (s *stage) expect(what string, results map[string]string, want map[string]string) {
	s.t.Helper()
	for name, value := range want {
		if results[name] != value {
			s.t.Errorf("%s: result %s is %q, want %q", what, name, results[name], value)
		}
	}
}

func TestTasksRoundTheCache(t *testing.T) {
	r := open(t)
	for name, test := range map[string]func(*testing.T, *stage){
		"a disk's step is done once":                    diskOnce,
		"a device's step is done once":                  deviceOnce,
		"a device that a killed pod left is finished":   deviceKilled,
		"a device half-way to a lost entry is refused":  deviceLost,
		"a poisoned entry leaves a device as it was":    devicePoisoned,
		"storage without clones ends the wait":          diskWithoutClones,
		"an entry deleted under a run is done anew":     diskEntryDeleted,
		"a worker that outlives its run is waited for":  diskWorkerOutlives,
		"a changed byte is a miss":                      diskMisses,
		"two runs at the same moment do the work once":  diskTwoRuns,
		"a poisoned entry is removed and the step done": diskPoisoned,
		"modes and time to live":                        diskModes,
		"a failed tool keeps nothing":                   diskFails,
		"an entry is not changed":                       diskOfEntry,
		"without the pod's image nothing is cached":     diskWithoutImage,
		"a tool that is cut short keeps nothing":        diskCancelled,
		"an import is done once":                        importOnce,
		"a poisoned import is removed and done again":   importPoisoned,
		"a file that changes meanwhile is not kept":     importChanges,
		"a pipeline's chain is restored":                chain,
		"a poisoned end of the chain gives way":         chainPoisoned,
		"an image that is published leaves nothing":     published,
	} {
		t.Run(name, func(t *testing.T) { test(t, newStage(t, r)) })
	}
	t.Run("a run whose pod is killed does its step once", func(t *testing.T) { killed(t, r) })
	t.Run("a run whose pod is killed restores its chain once", func(t *testing.T) { restoreKilled(t, r) })
}

func diskOnce(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.claim("b", "disk")
	params := func(claim string) map[string]any { return map[string]any{"pvc": claim, "virtCommands": "hello"} }
	first := s.succeeds(s.change, params("a"))
	s.expect("first", first, map[string]string{"cached": "false"})
	second := s.succeeds(s.change, params("b"))
	s.expect("second", second, map[string]string{"cached": "true", "digest": first["digest"]})
	if s.worked.Load() != 1 || s.content("b") != "disk\nhello" {
		t.Errorf("the tool ran %d times, the disk is %q", s.worked.Load(), s.content("b"))
	}
	var claim corev1.PersistentVolumeClaim
	s.must(s.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "b"}, &claim))
	if claim.Annotations[names.AnnotationDigest] != first["digest"] {
		t.Errorf("the claim says that its content is %q", claim.Annotations[names.AnnotationDigest])
	}
}

func diskMisses(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	for name, c := range map[string][2]string{"base": {"disl", "hello"}, "script": {"disk", "hellp"}} {
		s.claim(name, c[0])
		s.expect(name, s.succeeds(s.change, map[string]any{"pvc": name, "virtCommands": c[1]}), map[string]string{"cached": "false"})
		if s.content(name) != c[0]+"\n"+c[1] {
			t.Errorf("another %s: the disk is %q", name, s.content(name))
		}
	}
	if len(s.entries()) != 3 {
		t.Errorf("%d entries", len(s.entries()))
	}
}

func diskTwoRuns(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.claim("b", "disk")
	var group sync.WaitGroup
	var hits atomic.Int32
	// What a run watches first is the other's right to the work, and the step lasts until one does.
	waits := make(chan struct{})
	told := sync.OnceFunc(func() { close(waits) })
	s.tool = func(ctx context.Context, disk, commands string) error {
		select {
		case <-waits:
		case <-ctx.Done():
		}
		return appendCommands(ctx, disk, commands)
	}
	for _, claim := range []string{"a", "b"} {
		group.Go(func() {
			params := map[string]any{"pvc": claim, "virtCommands": "hello"}
			o := s.Run(t, rehearsal.Run{Task: s.change, Namespace: s.namespace, Name: "run-" + claim, UID: "uid-of-" + claim, Params: params, Watching: told})
			if o.Err != nil {
				t.Errorf("%v\n%s", o.Err, o.Log)
			}
			if o.Results["cached"] == "true" {
				hits.Add(1)
			}
		})
	}
	group.Wait()
	if s.worked.Load() != 1 || hits.Load() != 1 || s.content("a") != "disk\nhello" || s.content("b") != "disk\nhello" {
		t.Errorf("the tool ran %d times, %d hits, disks %q and %q", s.worked.Load(), hits.Load(), s.content("a"), s.content("b"))
	}
}

func diskPoisoned(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.claim("b", "disk")
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	bad := s.entries()[0].Name
	s.poison(bad)
	o := s.run(s.change, map[string]any{"pvc": "b", "virtCommands": "hello"})
	if o.Err != nil || o.Results["cached"] != "false" || s.content("b") != "disk\nhello" || s.worked.Load() != 2 {
		t.Errorf("%v, %v, the disk is %q", o.Err, o.Results, s.content("b"))
	}
	if !strings.Contains(o.Log, "removing an entry of the step cache") {
		t.Errorf("nobody is told: %s", o.Log)
	}
	if left := s.entries(); len(left) != 1 || left[0].Name == bad {
		t.Errorf("entries: %+v", left)
	}
}

func diskModes(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	entry := s.entries()[0]
	var dv cdiv1.DataVolume
	s.must(s.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: entry.Name}, &dv))
	dv.Annotations[stepcache.AnnotationFilled] = stepcache.FormatTime(time.Now().Add(-2 * time.Hour))
	s.must(s.Update(t.Context(), &dv))
	for n, c := range []struct {
		mode, ttl, cached string
		entries           int
	}{
		{"off", "", "false", 1}, {"auto", "3h", "true", 1}, {"auto", "1h", "false", 2}, {"refresh", "", "false", 3}, {"auto", "1h", "true", 3},
	} {
		claim := fmt.Sprintf("c%d", n)
		s.claim(claim, "disk")
		results := s.succeeds(s.change, map[string]any{"pvc": claim, "virtCommands": "hello", "cache": c.mode, "cacheTTL": c.ttl})
		s.expect(claim, results, map[string]string{"cached": c.cached})
		if s.content(claim) != "disk\nhello" || len(s.entries()) != c.entries {
			t.Errorf("cache %s, cacheTTL %q: the disk is %q, %d entries; want %d", c.mode, c.ttl, s.content(claim), len(s.entries()), c.entries)
		}
	}
	for params, want := range map[[2]string]string{{"on", ""}: `cache: "on" is not known; write auto, off or refresh`, {"auto", "30d"}: `cacheTTL: "30d" is no duration`} {
		o := s.run(s.change, map[string]any{"pvc": "a", "cache": params[0], "cacheTTL": params[1]})
		if o.Code != declare.CodeUsage || o.Err == nil || !strings.Contains(o.Err.Error(), want) {
			t.Errorf("%v: %d, %v; want %q", params, o.Code, o.Err, want)
		}
	}
}

func diskFails(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.tool = func(context.Context, string, string) error {
		return declare.Coded(3, errors.New("the tool's own words"))
	}
	if o := s.run(s.change, map[string]any{"pvc": "a"}); o.Code != 3 || len(s.entries()) != 0 {
		t.Errorf("%d, %v, %d entries", o.Code, o.Err, len(s.entries()))
	}
	s.tool = appendCommands
	s.expect("after it", s.succeeds(s.change, map[string]any{"pvc": "a"}), map[string]string{"cached": "false"}) // its Lease is free
}

func diskOfEntry(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	o := s.run(s.change, map[string]any{"pvc": s.entries()[0].Name, "virtCommands": "hello"})
	if o.Code != declare.CodeUsage || o.Err == nil || !strings.Contains(o.Err.Error(), "is an entry of the step cache") || s.worked.Load() != 1 {
		t.Errorf("%d, %v", o.Code, o.Err)
	}
}

func diskWithoutImage(t *testing.T, s *stage) {
	host, err := os.Hostname()
	s.must(err)
	s.must(s.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: host}}, client.GracePeriodSeconds(0)))
	s.claim("a", "disk")
	o := s.run(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	if o.Err != nil || o.Results["cached"] != "false" || s.content("a") != "disk\nhello" || len(s.entries()) != 0 || !strings.Contains(o.Log, "the step cache is not used") {
		t.Errorf("%v, %v, %d entries\n%s", o.Err, o.Results, len(s.entries()), o.Log)
	}
}

func diskCancelled(t *testing.T, s *stage) {
	s.claim("a", "disk")
	ended, stop := context.WithCancel(context.Background())
	s.tool = func(_ context.Context, disk, commands string) error {
		stop()
		return errors.Join(appendCommands(context.Background(), disk, commands[:2]), ended.Err())
	}
	if o := s.run(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"}); o.Err == nil || len(s.entries()) != 0 {
		t.Errorf("%v, %d entries", o.Err, len(s.entries()))
	}
	// Its half-changed disk is another base: what is made of it is nobody's hit.
	s.tool = appendCommands
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	s.claim("b", "disk")
	s.expect("a whole disk", s.succeeds(s.change, map[string]any{"pvc": "b", "virtCommands": "hello"}), map[string]string{"cached": "false"})
}

func importOnce(t *testing.T, s *stage) {
	first := s.succeeds(s.fetch, map[string]any{"name": "a"})
	s.expect("first", first, map[string]string{"cached": "false"})
	second := s.succeeds(s.fetch, map[string]any{"name": "b"})
	s.expect("second", second, map[string]string{"cached": "true", "digest": first["digest"]})
	if s.imports != 1 || s.content("b") != s.file || first["digest"] == "" {
		t.Errorf("imported %d times, the disk is %q, its digest %q", s.imports, s.content("b"), first["digest"])
	}
	s.mu.Lock()
	s.file, s.etag = "another", `"2"`
	s.mu.Unlock()
	s.expect("another version", s.succeeds(s.fetch, map[string]any{"name": "c"}), map[string]string{"cached": "false"})
	s.mu.Lock()
	s.etag = `W/"2"`
	s.mu.Unlock()
	for _, name := range []string{"d", "e"} {
		s.expect("without a strong ETag", s.succeeds(s.fetch, map[string]any{"name": name}), map[string]string{"cached": "false"})
	}
}

func importPoisoned(t *testing.T, s *stage) {
	s.succeeds(s.fetch, map[string]any{"name": "a"})
	bad := s.entries()[0].Name
	s.poison(bad)
	s.expect("after it", s.succeeds(s.fetch, map[string]any{"name": "b"}), map[string]string{"cached": "false"})
	if left := s.entries(); len(left) != 1 || left[0].Name == bad || s.content("b") != s.file {
		t.Errorf("entries %+v, the disk is %q", left, s.content("b"))
	}
}

func importChanges(t *testing.T, s *stage) {
	s.mu.Lock()
	s.next = `"2"`
	s.mu.Unlock()
	o := s.run(s.fetch, map[string]any{"name": "a"})
	if o.Err != nil || len(s.entries()) != 0 || !strings.Contains(o.Log, "another version of the file") {
		t.Errorf("%v, %d entries\n%s", o.Err, len(s.entries()), o.Log)
	}
}

// manifest is the volume of the chain; the import has the same, under the name of the restored one.
func (s *stage) manifest() string {
	return `apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {generateName: image-, labels: {mine: "yes"}}
spec:
  source: {http: {url: "` + s.server.URL + `"}}
  pvc: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}}
`
}

func (s *stage) chain(commands string, more map[string]any) map[string]any {
	params := map[string]any{"manifest": s.manifest(), "steps": []string{"disk-virt-customize\n" + commands + "\n", "disk-virt-customize\nsecond\n"}}
	maps.Copy(params, more)
	return params
}

// build does what a pipeline does with the results of its first task, and returns them.
func (s *stage) build(params map[string]any, commands string) map[string]string {
	s.t.Helper()
	r := s.succeeds(s.restore, params)
	if r["importCached"] != "true" {
		s.succeeds(s.fetch, map[string]any{"name": r["volume"]})
	}
	for n, step := range []string{commands, "second"} {
		if r["cachedSteps"] <= fmt.Sprint(n) {
			s.succeeds(s.change, map[string]any{"pvc": r["volume"], "virtCommands": step})
		}
	}
	if got, want := s.content(r["volume"]), s.file+"\n"+commands+"\nsecond"; got != want {
		s.t.Errorf("the disk is %q, want %q", got, want)
	}
	return r
}

func chain(t *testing.T, s *stage) {
	params := s.chain("first", nil)
	r := s.build(params, "first")
	s.expect("nothing is there", r, map[string]string{"importCached": "false", "cachedSteps": "0", "upToDate": "false", "cached": "false", "digest": ""})
	if !strings.HasPrefix(r["volume"], "image-") || !strings.HasPrefix(r["recipe"], "recipe1:") {
		t.Errorf("volume %q, recipe %q", r["volume"], r["recipe"])
	}
	again := s.build(params, "first")
	s.expect("all is there", again, map[string]string{"importCached": "true", "cachedSteps": "2", "upToDate": "false", "cached": "true", "recipe": r["recipe"]})
	if again["volume"] == r["volume"] || s.worked.Load() != 2 || s.imports != 1 {
		t.Errorf("volume %s, the tool ran %d times, %d imports", again["volume"], s.worked.Load(), s.imports)
	}
	var restored cdiv1.DataVolume
	s.must(s.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: again["volume"]}, &restored))
	if restored.Labels["mine"] != "yes" || restored.Annotations[stepcache.AnnotationFilled] == "" {
		t.Errorf("the restored volume is %+v", restored.ObjectMeta)
	}
	changed := s.build(s.chain("firsT", nil), "firsT")
	s.expect("the first step changed", changed, map[string]string{"importCached": "true", "cachedSteps": "0"})
	if changed["recipe"] == r["recipe"] {
		t.Error("the recipe is the same")
	}
	s.expect("off", s.succeeds(s.restore, s.chain("first", map[string]any{"cache": "off"})), map[string]string{"importCached": "false", "cachedSteps": "0", "recipe": r["recipe"]})
	s.expect("refresh", s.succeeds(s.restore, s.chain("first", map[string]any{"cache": "refresh"})), map[string]string{"importCached": "false", "cachedSteps": "0"})

	// A retry makes its volume anew under the same name.
	run := rehearsal.Run{Task: s.restore, Namespace: s.namespace, Name: "retried", UID: "uid-retried", Params: params}
	one, two := s.Run(t, run), s.Run(t, run)
	if one.Err != nil || two.Err != nil || one.Results["volume"] != two.Results["volume"] || two.Results["cachedSteps"] != "2" {
		t.Errorf("%v, %v, %v, %v", one.Err, one.Results, two.Err, two.Results)
	}
	for name, c := range map[string]struct{ param, value, want string }{
		"manifest": {"manifest", "kind: Pod", "wrong group or kind"},
		"typing":   {"manifest", strings.Replace(s.manifest(), "pvc:", "pcv:", 1), "unknown field"},
		"source":   {"manifest", strings.Replace(s.manifest(), `http: {url: "`+s.server.URL+`"}`, "blank: {}", 1), "spec.source.http is required"},
		"name":     {"manifest", strings.Replace(s.manifest(), "generateName: image-, ", "", 1), "metadata.name or metadata.generateName is required"},
	} {
		o := s.run(s.restore, s.chain("first", map[string]any{c.param: c.value}))
		if o.Code != declare.CodeUsage || o.Err == nil || !strings.Contains(o.Err.Error(), c.want) {
			t.Errorf("%s: %d, %v; want %q", name, o.Code, o.Err, c.want)
		}
	}
	bad := s.chain("first", nil)
	bad["steps"] = []string{"disk-virt-customize", "disk-virt-custom\nx"}
	if o := s.run(s.restore, bad); o.Code != declare.CodeUsage || !strings.Contains(o.Err.Error(), `steps: item 2: its first line names task "disk-virt-custom"`) {
		t.Errorf("%d, %v", o.Code, o.Err)
	}
}

func chainPoisoned(t *testing.T, s *stage) {
	params := s.chain("first", nil)
	s.build(params, "first")
	var bad stepcache.Entry
	for _, e := range s.entries() {
		if strings.HasSuffix(s.content(e.Name), "second") {
			bad = e
		}
	}
	s.poison(bad.Name)
	r := s.build(params, "first")
	s.expect("the last entry is poisoned", r, map[string]string{"importCached": "true", "cachedSteps": "1"})
	for _, e := range s.entries() {
		if e.Name == bad.Name {
			t.Error("the poisoned entry is still there")
		}
	}
}

func published(t *testing.T, s *stage) {
	params := s.chain("first", map[string]any{"dataSource": "image", "recipe": []string{"check"}})
	r := s.build(params, "first")
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "image", Annotations: map[string]string{names.Domain + "step-cache-recipe": r["recipe"] + "@" + r["volume"]}},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: s.namespace, Name: r["volume"]}}},
	}
	s.must(s.Create(t.Context(), source))
	volumes := func() int {
		var list cdiv1.DataVolumeList
		s.must(s.List(t.Context(), &list, client.InNamespace(s.namespace)))
		return len(list.Items)
	}
	before, workers := volumes(), s.workers
	s.expect("published", s.succeeds(s.restore, params), map[string]string{"upToDate": "true", "importCached": "true", "cachedSteps": "2", "volume": r["volume"], "dataSource": "image", "cached": "true"})
	if volumes() != before || s.workers != workers {
		t.Errorf("%d volumes instead of %d, %d pods", volumes(), before, s.workers-workers)
	}
	for name, more := range map[string]map[string]any{
		"another check":  {"recipe": []string{"cheCk"}},
		"one value more": {"recipe": []string{"check", ""}},
		"another source": {"dataSource": "other"},
		"no source":      {"dataSource": ""},
		"refresh":        {"cache": "refresh"},
		"too old":        {"cacheTTL": "1ns"},
		"no template":    {"template": "none"},
	} {
		more = s.with(params, more)
		s.expect(name, s.succeeds(s.restore, more), map[string]string{"upToDate": "false"})
	}
	// The claim behind the DataSource is another one now.
	source.Spec.Source.PVC.Name = s.entries()[0].Name
	s.must(s.Update(t.Context(), source))
	s.expect("another claim", s.succeeds(s.restore, params), map[string]string{"upToDate": "false"})
	source.Spec.Source.PVC.Name = r["volume"]
	s.must(s.Update(t.Context(), source))
	s.expect("published again", s.succeeds(s.restore, params), map[string]string{"upToDate": "true"})
	s.must(s.Delete(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: r["volume"]}}))
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	key := client.ObjectKey{Namespace: s.namespace, Name: r["volume"]}
	s.must(await.Object(ctx, s.node, &corev1.PersistentVolumeClaimList{}, key, func(_ *corev1.PersistentVolumeClaim, exists bool) (bool, error) { return !exists, nil }))
	s.expect("no claim", s.succeeds(s.restore, params), map[string]string{"upToDate": "false", "cachedSteps": "2"})
}

// with is params with some of them replaced.
func (s *stage) with(params, more map[string]any) map[string]any {
	all := maps.Clone(params)
	maps.Copy(all, more)
	return all
}
