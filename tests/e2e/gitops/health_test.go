//go:build e2e

package gitops

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/pipelines/gitops/health"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// recordedFile is where GITOPS_RECORD=1 keeps the objects, for the tests without a cluster.
const recordedFile = "pipelines/gitops/health/testdata/recorded.yaml"

// recorded are the cases that the suite has seen.
var recorded []health.Case

var _ = Describe("health", Ordered, func() {
	var ns string
	BeforeAll(func(ctx context.Context) { ns = suite.Namespace(ctx) }, NodeTimeout(suite.BoundEnd))
	AfterAll(func() {
		if os.Getenv("GITOPS_RECORD") == "" {
			return
		}
		text, err := yaml.Marshal(recorded)
		Expect(err).NotTo(HaveOccurred())
		head := "# Objects of a cluster, and what Argo CD and Flux make of them. Written by tests/e2e/gitops with GITOPS_RECORD=1.\n"
		text = bytes.ReplaceAll(text, []byte(filepath.Join(suite.World.Root, ".cluster")), []byte("/var/lib/slipway")) // no path of this machine
		Expect(os.WriteFile(filepath.Join(suite.World.Root, recordedFile), append([]byte(head), text...), 0o600)).To(Succeed())
	})

	It("of the installation and its node storage", func(ctx context.Context) {
		hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: "kubevirt-hyperconverged"}}
		becomes(ctx, "an installation that is well", hco, health.Healthy, health.Current)
		var pools hppv1beta1.HostPathProvisionerList
		Expect(suite.World.Client.List(ctx, &pools)).To(Succeed())
		if suite.World.Existing && len(pools.Items) == 0 {
			return // it has other storage
		}
		Expect(pools.Items).To(HaveLen(1))
		becomes(ctx, "node storage that is ready", &pools.Items[0], health.Healthy, health.Current)
	}, SpecTimeout(20*time.Minute))

	It("of disks, snapshots and DataSources", func(ctx context.Context) {
		early := sourceOf(ns, "early", "disk")
		suite.Create(ctx, early)
		becomes(ctx, "a DataSource committed before its claim is there", early, health.Progressing, health.InProgress)

		disk := fixture.DataVolume(ns, "disk", "16Mi")
		suite.Create(ctx, disk)
		becomes(ctx, "a disk that is filled", disk, health.Healthy, health.Current)
		becomes(ctx, "a DataSource whose claim is there", early, health.Healthy, health.Current)

		waiting := fixture.DataVolume(ns, "waiting", "16Mi", func(dv *cdiv1.DataVolume) { dv.Annotations = nil })
		suite.Create(ctx, waiting)
		becomes(ctx, "a disk that waits for its VM", waiting, health.Healthy, health.Current)

		itself := sourceOf(ns, "itself", "")
		suite.Create(ctx, itself)
		becomes(ctx, "a DataSource that points to itself", itself, health.Degraded, health.Failed)

		snapshot := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kept"},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &disk.Name}},
		}
		suite.Create(ctx, snapshot)
		becomes(ctx, "a snapshot that can be used", snapshot, "", health.Current)
	}, SpecTimeout(25*time.Minute))

	It("of VMs", func(ctx context.Context) {
		halted := fixture.VM(ns, "halted", fixture.Strategy(virtv1.RunStrategyHalted), fixture.ContainerDisk(suite.TinyImage()))
		suite.Create(ctx, halted)
		becomes(ctx, "a VM that is halted", halted, "", health.Current)
		running := fixture.VM(ns, "running", fixture.Strategy(virtv1.RunStrategyAlways), fixture.ContainerDisk(suite.TinyImage()))
		suite.Create(ctx, running)
		becomes(ctx, "a VM that runs", running, "", health.Current)
	}, SpecTimeout(25*time.Minute))

	It("of pipeline runs", func(ctx context.Context) {
		giveRights(ctx, ns)
		good := start(ctx, ns, &tektonv1.TaskRef{ResolverRef: tektonv1.ResolverRef{Resolver: "cluster", Params: stringParams("kind", "task", "namespace", catalog, "name", keysTask)}})
		becomes(ctx, "a run that succeeded", good, "", health.Current)
		bad := start(ctx, ns, &tektonv1.TaskRef{Kind: tektonv1.NamespacedTaskKind, Name: "no-such-task"})
		becomes(ctx, "a run that failed", bad, "", health.Failed)
	}, SpecTimeout(25*time.Minute))
})

// sourceOf is a DataSource of a claim, or of itself.
func sourceOf(namespace, name, claim string) *cdiv1.DataSource {
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if claim == "" {
		source.Spec.Source.DataSource = &cdiv1.DataSourceRefSourceDataSource{Namespace: namespace, Name: name}
	} else {
		source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: claim}
	}
	return source
}

// becomes waits until the checks find the wanted of the object, and records it. On the way there
// no script or expression may break: only an object without a status has no answer.
func becomes(ctx context.Context, name string, watched client.Object, argo health.Status, flux health.State) {
	GinkgoHelper()
	kind, err := suite.World.Client.GroupVersionKindFor(watched)
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	var way *health.Case
	err = suite.World.Await(ctx, GinkgoWriter, watched, suite.BoundBoot, func(client.Object) (string, bool, error) {
		// As the API server has it, with no empty fields of a Go type.
		if err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(watched), object); err != nil {
			return "", false, err
		}
		words, done, err := verdict(object, argo, flux)
		if _, said := object.Object["status"]; said && err == nil && !done {
			way = onTheWay(name, object, argo)
		}
		return words, done, err
	})
	Expect(err).NotTo(HaveOccurred(), name)
	if way != nil {
		recorded = append(recorded, *way)
	}
	recorded = append(recorded, health.Case{Name: name, Argo: argo, Flux: flux, Source: "a cluster", Object: lean(object).Object})
}

// onTheWay is the case of an object that is in progress; nil of one that is in another state than
// the one that is waited for, such as a disk that waits for its VM before it is filled.
func onTheWay(name string, object *unstructured.Unstructured, argo health.Status) *health.Case {
	way := health.Case{Name: name + ", before", Flux: health.InProgress, Source: "a cluster", Object: lean(object).Object}
	if argo != "" {
		way.Argo = health.Progressing
	}
	if way.Check() != nil {
		return nil
	}
	return &way
}

// verdict says in words what is made of the object, and whether that is the wanted.
func verdict(object *unstructured.Unstructured, argo health.Status, flux health.State) (string, bool, error) {
	words, done := "", true
	if argo != "" {
		status, message, err := health.Argo(object)
		if err != nil {
			return "", false, err
		}
		words, done = string(status)+" ("+message+") ", status == argo
	}
	if _, said := object.Object["status"]; !said {
		return words + "no status", false, nil
	}
	state, err := health.Flux(object)
	return words + string(state), done && state == flux, err
}

// lean leaves out what differs from cluster to cluster.
func lean(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	metadata := map[string]any{"name": out.GetName(), "generation": out.GetGeneration()}
	if out.GetNamespace() != "" {
		metadata["namespace"] = corev1.NamespaceDefault
	}
	out.Object["metadata"] = metadata
	return out
}
