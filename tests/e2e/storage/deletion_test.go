//go:build e2e

package storage

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// journey is how DataVolumes of one kind come to their end.
type journey struct {
	size    string
	options []fixture.DataVolumeOption
	// phases are those in which one is deleted, in the order in which they come.
	phases []cdiv1.DataVolumePhase
}

// reached says whether one that is in phase has come as far as want.
func (j journey) reached(phase, want cdiv1.DataVolumePhase) bool {
	return slices.Index(j.phases, phase) >= slices.Index(j.phases, want)
}

// build makes the DataVolume that is deleted in phase. What is downloaded comes slowly, unless it is to be whole.
func (j journey) build(ns, kind string, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
	dv := fixture.DataVolume(ns, kind+"-"+strings.ToLower(string(phase)), j.size, j.options...)
	if phase == cdiv1.WaitForFirstConsumer {
		delete(dv.Annotations, names.AnnotationBind)
	}
	if source := dv.Spec.Source; phase != cdiv1.Succeeded && (source.HTTP != nil || source.Registry != nil) {
		dv.Annotations[names.AnnotationBandwidth] = "64Ki"
	}
	return dv
}

var _ = Describe("a DataVolume of any kind", func() {
	It("leaves nothing behind when it is deleted, whichever phase it is in", func(ctx context.Context) {
		address, authority := tinyInRegistry(ctx)
		ns := suite.Namespace(ctx)
		class := onClass(snapshotting(ctx))
		suite.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authority"}, Data: map[string]string{"registry.pem": string(authority)}},
			fixture.DataVolume(ns, "source", "64Mi"), fixture.DataVolume(ns, "snapped", "64Mi", class))
		stay := staying(ctx, ns)
		seen := namesOf(ctx, ns)

		kinds := map[string]journey{
			"http": {"256Mi", options(fixture.HTTP(root + "/disk.qcow2")),
				phases(cdiv1.WaitForFirstConsumer, cdiv1.ImportScheduled, cdiv1.ImportInProgress, cdiv1.Succeeded)},
			"registry": {"256Mi", options(fixture.Registry(address, "authority")), phases(cdiv1.ImportInProgress, cdiv1.Succeeded)},
			"upload":   {"64Mi", options(uploaded), phases(cdiv1.UploadScheduled, cdiv1.UploadReady)},
			"blank":    {"64Mi", options(), phases(cdiv1.ImportInProgress, cdiv1.Succeeded)},
			"nowhere":  {"64Mi", options(fixture.CloneOf(ns, "absent")), phases(cdiv1.Pending)},
			"clone": {"64Mi", options(fixture.CloneOf(ns, "source")),
				phases(cdiv1.WaitForFirstConsumer, cdiv1.CSICloneInProgress, cdiv1.Succeeded)},
			"copy": {"64Mi", options(fixture.CloneOf(ns, "source"), copied),
				phases(cdiv1.CloneScheduled, cdiv1.CloneInProgress, cdiv1.Succeeded)},
			"through": {"64Mi", options(fixture.CloneOf(ns, "snapped"), class),
				phases(cdiv1.SnapshotForSmartCloneInProgress, cdiv1.CloneFromSnapshotSourceInProgress, cdiv1.Succeeded)},
			"snapshot": {"64Mi", options(fixture.SnapshotOf(ns, "kept")), phases(cdiv1.CloneFromSnapshotSourceInProgress, cdiv1.Succeeded)},
			"snapcopy": {"64Mi", options(fixture.SnapshotOf(ns, "kept"), copied), phases(cdiv1.CloneScheduled, cdiv1.CloneInProgress, cdiv1.Succeeded)},
		}
		var all sync.WaitGroup
		for kind, j := range kinds {
			for _, phase := range j.phases {
				all.Go(func() {
					defer GinkgoRecover()
					dv := j.build(ns, kind, phase)
					suite.Create(ctx, dv)
					found := suite.DataVolumeUntil(ctx, ns, dv.Name, func(dv *cdiv1.DataVolume) bool { return j.reached(dv.Status.Phase, phase) })
					GinkgoWriter.Printf("deleting %s in phase %s\n", dv.Name, found.Status.Phase)
					Expect(suite.World.Client.Delete(ctx, dv)).To(Succeed())
					Expect(suite.World.Gone(ctx, GinkgoWriter, dv, suite.BoundEnd)).To(Succeed())
				})
			}
		}
		all.Wait()
		Eventually(func() ([]string, error) { return leftovers(ctx, ns, stay) }).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
			Should(BeEmpty(), "objects of deleted DataVolumes")
		Expect(len(seen())).To(BeNumerically(">=", len(kinds)), "claims and snapshots that there were")
		if !suite.World.Existing {
			Eventually(func() ([]string, error) { return inPool(seen(), stay) }).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
				Should(BeEmpty(), "what the pool has of deleted DataVolumes")
		}
	}, SpecTimeout(30*time.Minute))
})

func options(all ...fixture.DataVolumeOption) []fixture.DataVolumeOption { return all }

func phases(all ...cdiv1.DataVolumePhase) []cdiv1.DataVolumePhase { return all }

// uploaded waits for somebody to send the disk.
func uploaded(dv *cdiv1.DataVolume) {
	dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
}

// copied has the source copied by a pod, though the driver would clone it.
func copied(dv *cdiv1.DataVolume) { dv.Annotations["cdi.kubevirt.io/cloneType"] = "copy" }

// onClass asks for a volume of a StorageClass.
func onClass(class string) fixture.DataVolumeOption {
	return func(dv *cdiv1.DataVolume) { dv.Spec.Storage.StorageClassName = &class }
}

// staying waits until what is cloned is there, takes a snapshot of it, and returns which objects of the namespace are to stay.
func staying(ctx context.Context, ns string) map[types.UID]bool {
	GinkgoHelper()
	stay := map[types.UID]bool{}
	for _, name := range []string{"source", "snapped"} {
		stay[suite.DataVolume(ctx, ns, name, cdiv1.Succeeded).UID] = true
		claim := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, claim)).To(Succeed())
		stay[claim.UID] = true
	}
	snapshot := snapshotOf(ns, "kept", "source")
	suite.Create(ctx, snapshot)
	ready(ctx, snapshot)
	stay[snapshot.UID] = true
	return stay
}

// namesOf returns what tells of every claim and snapshot that the namespace has had since, by its uid, of which the names of its files are made.
func namesOf(ctx context.Context, ns string) func() map[types.UID]string {
	GinkgoHelper()
	var mu sync.Mutex
	seen := map[types.UID]string{}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &snapshotv1.VolumeSnapshotList{}} {
		events, err := suite.World.Client.Watch(watching, list, client.InNamespace(ns))
		Expect(err).NotTo(HaveOccurred())
		go func() {
			for err == nil {
				for event := range events.ResultChan() {
					if object, ok := event.Object.(client.Object); ok {
						mu.Lock()
						seen[object.GetUID()] = fmt.Sprintf("%T %s", object, object.GetName())
						mu.Unlock()
					}
				}
				if watching.Err() != nil {
					return
				}
				events, err = suite.World.Client.Watch(watching, list, client.InNamespace(ns)) // the API server ends one now and then
			}
		}()
	}
	return func() map[types.UID]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

// leftovers are the objects of the namespace, and its volumes and contents of snapshots, that are not to stay.
func leftovers(ctx context.Context, ns string, stay map[types.UID]bool) ([]string, error) {
	var left []string
	add := func(object client.Object, of types.UID) {
		if !stay[of] {
			left = append(left, fmt.Sprintf("%T %s", object, object.GetName()))
		}
	}
	for _, list := range []client.ObjectList{
		&cdiv1.DataVolumeList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &snapshotv1.VolumeSnapshotList{},
	} {
		if err := suite.World.Client.List(ctx, list, client.InNamespace(ns)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			add(item.(client.Object), item.(client.Object).GetUID())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var volumes corev1.PersistentVolumeList
	var contents snapshotv1.VolumeSnapshotContentList
	for _, list := range []client.ObjectList{&volumes, &contents} {
		if err := suite.World.Client.List(ctx, list); err != nil {
			return nil, err
		}
	}
	for i := range volumes.Items {
		if claim := volumes.Items[i].Spec.ClaimRef; claim != nil && claim.Namespace == ns {
			add(&volumes.Items[i], claim.UID)
		}
	}
	for i := range contents.Items {
		if snapshot := contents.Items[i].Spec.VolumeSnapshotRef; snapshot.Namespace == ns {
			add(&contents.Items[i], snapshot.UID)
		}
	}
	return left, nil
}

// inPool are the files and folders on the node of those claims and snapshots that were seen and are not to stay: volumes, snapshots, their
// records, and rests of either.
func inPool(seen map[types.UID]string, stay map[types.UID]bool) ([]string, error) {
	var left []string
	for _, pattern := range []string{"*", ".slipway/*/*"} {
		paths, err := filepath.Glob(filepath.Join(suite.World.Local.PoolPath, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			for uid, name := range seen {
				if !stay[uid] && strings.Contains(filepath.Base(path), string(uid)) {
					left = append(left, path+" of "+name)
				}
			}
		}
	}
	return left, nil
}
