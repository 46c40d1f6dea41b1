package metrics

import (
	"errors"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// recorded is a world as a file has it.
type recorded struct {
	VMs    []virtv1.VirtualMachine
	VMIs   []virtv1.VirtualMachineInstance
	Pods   map[string]*corev1.Pod
	Claims []corev1.PersistentVolumeClaim

	KubeVirts []virtv1.KubeVirt
	Snapshots []snapshotv1.VirtualMachineSnapshot
	CDIs      []cdiv1.CDI
	Volumes   []cdiv1.DataVolume
	Crons     []cdiv1.DataImportCron
	Profiles  []cdiv1.StorageProfile
	Classes   []storagev1.StorageClass
	Labels    map[string]string // the ConfigMap's data
}

func readWorld(t *testing.T) *world {
	t.Helper()
	data, err := os.ReadFile("testdata/world.in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var from recorded
	if err := yaml.UnmarshalStrict(data, &from); err != nil {
		t.Fatal(err)
	}
	w := &world{
		vms: from.VMs, vmis: from.VMIs, pods: from.Pods, claims: map[client.ObjectKey]*corev1.PersistentVolumeClaim{},
		kubevirts: from.KubeVirts, snapshots: from.Snapshots, cdis: from.CDIs, volumes: from.Volumes, crons: from.Crons,
		profiles: from.Profiles, classes: from.Classes, labels: labelRulesOf(from.Labels),
	}
	w.nameInstances()
	for i := range from.Claims {
		w.claims[client.ObjectKeyFromObject(&from.Claims[i])] = &from.Claims[i]
	}
	return w
}

// newCollector returns a collector of w, and what makes it lead.
func newCollector(t *testing.T, w *world) (*collector, func()) {
	t.Helper()
	elected := make(chan struct{})
	return &collector{
		transitions: newTransitions(), elected: elected,
		list: func() (*world, error) {
			if w == nil {
				return nil, errors.New("no cache")
			}
			return w, nil
		},
		failed: func(err error) { t.Log(err) },
	}, func() { close(elected) }
}

// exposed is what Prometheus would read.
func exposed(t *testing.T, c *collector) string {
	t.Helper()
	registry := prometheus.NewRegistry() // a pedantic one wants labels of VMs described before they are known
	registry.MustRegister(c)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("the scrape failed: %s", answer.Body)
	}
	return answer.Body.String()
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// aged is a VMI that entered phases at seconds after its creation.
func aged(phase virtv1.VirtualMachineInstancePhase, entered map[virtv1.VirtualMachineInstancePhase]int) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.CreationTimestamp = metav1.NewTime(began)
	vmi.Status.Phase = phase
	for name, after := range entered {
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps, virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
			Phase: name, PhaseTransitionTimestamp: metav1.NewTime(began.Add(time.Duration(after) * time.Second)),
		})
	}
	return vmi
}

// live lets a VMI start and be deleted, and a VM be created.
func live(c *collector) {
	entered := map[virtv1.VirtualMachineInstancePhase]int{virtv1.Pending: 0, virtv1.Scheduling: 1, virtv1.Running: 4, virtv1.Succeeded: 107}
	times := c.timeTransitions()
	times.OnUpdate(aged(virtv1.VmPhaseUnset, nil), aged(virtv1.Pending, entered))
	times.OnUpdate(aged(virtv1.Scheduling, entered), aged(virtv1.Running, entered))
	times.OnUpdate(aged(virtv1.Running, entered), aged(virtv1.Running, entered))
	deleted := aged(virtv1.Succeeded, entered)
	grace := int64(30)
	at := metav1.NewTime(began.Add(130 * time.Second)) // asked for after 100
	deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &at, &grace
	times.OnUpdate(aged(virtv1.Running, entered), deleted)
	vm := &virtv1.VirtualMachine{}
	vm.Namespace = "shop"
	c.countCreated().OnAdd(vm, false)
	c.countCreated().OnAdd(vm, true)
}

func TestVMsAreExposedInTheFieldsWords(t *testing.T) {
	c, lead := newCollector(t, readWorld(t))
	lead()
	live(c)
	got := exposed(t, c)
	fixture.Golden(t, filepath.Join("testdata", "world.out.txt"), got)
	for _, m := range All() {
		if !strings.Contains(got, "# TYPE "+m.Name+" "+string(m.Kind)+"\n") {
			t.Errorf("%s is listed, and the recorded world does not show it", m.Name)
		}
	}
}

func TestWhatEvictsAVMIIsTheClustersToSayWhereItSaysNothing(t *testing.T) {
	w := &world{kubevirts: make([]virtv1.KubeVirt, 1)}
	w.kubevirts[0].Spec.Configuration.EvictionStrategy = new(virtv1.EvictionStrategyLiveMigrate)
	says, silent, moves := &virtv1.VirtualMachineInstance{}, &virtv1.VirtualMachineInstance{}, &virtv1.VirtualMachineInstance{}
	says.Spec.EvictionStrategy = new(virtv1.EvictionStrategyNone)
	moves.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}}
	if got := [3]bool{w.evictable(says), w.evictable(silent), w.evictable(moves)}; got != [3]bool{true, false, true} {
		t.Errorf("got %v", got)
	}
}

func TestOnlyWhoLeadsTells(t *testing.T) {
	c, lead := newCollector(t, readWorld(t))
	live(c)
	if got := exposed(t, c); strings.Count(got, "\nkubevirt_") != 1 || !strings.Contains(got, "\nkubevirt_virt_controller_leading_status 0\n") {
		t.Errorf("one that does not lead tells\n%s", got)
	}
	lead()
	if got := exposed(t, c); strings.Contains(got, "created_total{") || !strings.Contains(got, "\nkubevirt_virt_controller_leading_status 1\n") {
		t.Errorf("what happened before it led is counted:\n%s", got)
	}
}

func TestACacheThatFailsLeavesTheRest(t *testing.T) {
	c, lead := newCollector(t, nil)
	lead()
	live(c)
	if got := exposed(t, c); !strings.Contains(got, "kubevirt_vm_created_total{namespace=\"shop\"} 1\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestWhichLabelsOfVMsAreTold(t *testing.T) {
	vm := &virtv1.VirtualMachine{}
	vm.Labels = map[string]string{"app": "web", "app.kubernetes.io/name": "shop", "9": "digit"}
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "template", "app-tier": "front", "app.tier": "dropped"}
	for sentence, test := range map[string]struct{ data, want map[string]string }{
		"all without a ConfigMap": {nil, map[string]string{
			"label_app": "template", "label_app_kubernetes_io_name": "shop", "label__9": "digit", "label_app_tier": "front",
		}},
		"those that are allowed":           {map[string]string{"allowlist": "app, app-tier"}, map[string]string{"label_app": "template", "label_app_tier": "front"}},
		"none where none is allowed":       {map[string]string{"allowlist": " "}, map[string]string{}},
		"not those that are to be ignored": {map[string]string{"allowlist": "app,9", "ignorelist": "9"}, map[string]string{"label_app": "template"}},
		"the star and what is ignored":     {map[string]string{"allowlist": "*", "ignorelist": "app,9,app-tier,app.tier"}, map[string]string{"label_app_kubernetes_io_name": "shop"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := labelRulesOf(test.data).labelsOf(vm); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestAVolumeWaitsForAClassOnlyWhereThereIsNone(t *testing.T) {
	dv := &cdiv1.DataVolume{}
	dv.Name, dv.Namespace, dv.Spec.PVC = "disk", "shop", &corev1.PersistentVolumeClaimSpec{}
	w := &world{}
	if !w.waitsForClass(dv) {
		t.Error("one that names no class does not wait for one")
	}
	claim := &corev1.PersistentVolumeClaim{}
	w.claims = map[client.ObjectKey]*corev1.PersistentVolumeClaim{{Namespace: "shop", Name: "disk"}: claim}
	claim.Status.Phase = corev1.ClaimBound
	if w.waitsForClass(dv) {
		t.Error("one whose claim is bound waits")
	}
	claim.Status.Phase = corev1.ClaimPending
	w.classes = []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}}}
	if w.waitsForClass(dv) {
		t.Error("it waits where there is a default class")
	}
	w.classes = nil
	dv.Spec.PVC.StorageClassName = new("fast")
	if w.waitsForClass(dv) {
		t.Error("one that names a class waits for another")
	}
}

func TestAClassOfBucketsIsNotSaidToLackModes(t *testing.T) {
	w := &world{}
	for name, provisioner := range map[string]string{"buckets": "openshift-storage.noobaa.io/obc", "others": "openshift-storage.ceph.rook.io/bucket", "disks": "example.com/disks"} {
		w.classes = append(w.classes, storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner})
		w.profiles = append(w.profiles, cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var told []string
	w.tellProfiles(func(_ metric.Metric, _ float64, labels ...string) { told = append(told, labels[0]) })
	if !slices.Equal(told, []string{"disks"}) {
		t.Errorf("got %v", told)
	}
}

func TestEveryListHasItsObject(t *testing.T) {
	for _, list := range (&lists{}).all() {
		if elementOf(list) == nil {
			t.Errorf("%T has none", list)
		}
	}
}
