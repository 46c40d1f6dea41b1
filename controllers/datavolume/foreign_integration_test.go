//go:build integration

package datavolume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestClonesAcrossNamespaces runs the controller against a real API server; the tests play
// storage, and Kubernetes' controller of volumes.
func TestClonesAcrossNamespaces(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *foreign){
		"a volume comes from another namespace":                       volumeComes,
		"without leave nothing is cloned":                             noLeave,
		"a DataSource that was changed since is not followed":         sourceChanged,
		"a DataVolume that goes early leaves nothing in either place": goesEarly,
		"a DataVolume that goes late gives its volume up":             goesLate,
		"a claim that goes at once is made anew for its volume":       claimGoes,
		"a clone arrives when its DataSource is deleted":              dataSourceGoes,
		"what stands in the way is said":                              inTheWay,
	} {
		t.Run(name, func(t *testing.T) {
			f := &foreign{world: newWorld(t, c), there: newWorld(t, c)}
			f.source()
			test(t, f)
		})
	}
}

// foreign is a case with a second namespace, which has the source.
type foreign struct {
	*world
	there *world
}

// source makes a filled claim base in the other namespace.
func (f *foreign) source() {
	f.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "base", Namespace: f.there.namespace, Annotations: map[string]string{names.AnnotationDigest: "slipway1:22"},
	}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("local"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	f.must(f.Create(f.t.Context(), claim))
	f.there.bind("base")
}

// clone makes a DataVolume that clones base, with leave when it has some.
func (f *foreign) clone(leave string) *cdiv1.DataVolume {
	f.t.Helper()
	return f.create("clone", "local", &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: f.there.namespace, Name: "base"}}, func(dv *cdiv1.DataVolume) {
		dv.Labels, dv.Annotations = map[string]string{"mine": "yes"}, map[string]string{"private": "yes"}
		dv.Spec.ServiceAccountName, dv.Spec.PriorityClassName = "mine", ""
		if leave != "" {
			dv.Annotations[clonesource.AnnotationAuthorized] = leave
		}
	})
}

func (f *foreign) allowed() *cdiv1.DataVolume { return f.clone(f.there.namespace + "/base") }

// clonedThere waits for the claim in the other namespace, and its pod.
func (f *foreign) clonedThere(dv *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	f.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	pod := &corev1.Pod{}
	name := "clone-" + string(dv.UID)
	f.until("there is a clone with its pod in the source's namespace", func() bool {
		return f.Get(f.t.Context(), client.ObjectKey{Namespace: f.there.namespace, Name: name}, claim) == nil &&
			f.Get(f.t.Context(), client.ObjectKey{Namespace: f.there.namespace, Name: "importer-" + name}, pod) == nil
	})
	if claim.Spec.DataSource == nil || claim.Spec.DataSource.Name != "base" || claim.Labels["mine"] != "" || claim.Annotations["private"] != "" {
		f.t.Errorf("the clone in the source's namespace is %+v", claim)
	}
	if pod.Spec.ServiceAccountName == "mine" || pod.OwnerReferences[0].UID != claim.UID {
		f.t.Errorf("the pod in the source's namespace is %+v", pod)
	}
	return claim
}

// volume gives the claim a volume of 1Gi.
func (f *foreign) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	f.t.Helper()
	return f.volumeOf(claim, resource.MustParse("1Gi"))
}

// volumeOf gives the claim a volume of a size, as its provisioner does, and binds them.
func (f *foreign) volumeOf(claim *corev1.PersistentVolumeClaim, size resource.Quantity) *corev1.PersistentVolume {
	f.t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(claim.UID)}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: size},
		ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: names.HostPathDriver, VolumeHandle: string(claim.UID)}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyNode, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}},
		}}}},
	}}
	f.must(f.Create(f.t.Context(), volume))
	claim.Spec.VolumeName = volume.Name
	f.must(f.Update(f.t.Context(), claim))
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, volume.Spec.Capacity
	f.must(f.Status().Update(f.t.Context(), claim))
	return volume
}

// now reads the volume anew.
func (f *foreign) now(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	f.t.Helper()
	f.must(f.Get(f.t.Context(), client.ObjectKeyFromObject(volume), volume))
	return volume
}

// gone waits for the end of a claim, whose protection the test plays. Another of its name may
// be there at once.
func (f *foreign) gone(claim *corev1.PersistentVolumeClaim) {
	f.t.Helper()
	f.until("the claim in the source's namespace is gone", func() bool {
		found := &corev1.PersistentVolumeClaim{}
		err := f.Get(f.t.Context(), client.ObjectKeyFromObject(claim), found)
		if err == nil && found.UID == claim.UID && found.DeletionTimestamp != nil && len(found.Finalizers) > 0 {
			found.Finalizers = nil
			_ = f.Update(f.t.Context(), found) // tried again
		}
		return apierrors.IsNotFound(err) || err == nil && found.UID != claim.UID
	})
}

func volumeComes(t *testing.T, f *foreign) {
	dv := f.allowed()
	there := f.clonedThere(dv)
	f.phase("clone", cdiv1.CSICloneInProgress)
	if c := condition(f.dv("clone"), cdiv1.DataVolumeRunning); c.Reason != "CloneInProgress" {
		t.Errorf("Running is %+v", c)
	}
	volume := f.volume(there)
	f.until("the volume is kept while it is on its way", func() bool {
		return f.now(volume).Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	})
	f.gone(there)
	f.until("the volume is the new claim's", func() bool { return f.now(volume).Spec.ClaimRef.Namespace == f.namespace })
	if ref := volume.Spec.ClaimRef; ref.Name != "clone" || ref.UID != "" {
		t.Errorf("the volume is reserved for %+v", ref)
	}
	f.until("the new claim is there", func() bool { return f.claim("clone").UID != "" })
	claim := f.claim("clone")
	if claim.Annotations["volume.kubernetes.io/selected-node"] != "node-1" {
		t.Errorf("the claim's annotations are %v: its node may not expand it", claim.Annotations)
	}
	if claim.Spec.VolumeName != volume.Name || claim.Spec.DataSource != nil || claim.Labels["mine"] != "yes" {
		t.Errorf("the claim is %+v", claim)
	}
	f.phase("clone", cdiv1.RebindInProgress)
	f.bind("clone")
	found := f.phase("clone", cdiv1.Succeeded)
	if found.Annotations[names.AnnotationDigest] != "slipway1:22" {
		t.Errorf("the DataVolume is %+v", found.ObjectMeta)
	}
	if f.now(volume); volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || volume.Labels[datavolume.LabelCloneFor] != "" || len(volume.Annotations) > 0 {
		t.Errorf("the volume that has arrived is %+v", volume)
	}
}

func noLeave(t *testing.T, f *foreign) {
	f.clone("")
	dv := f.phase("clone", cdiv1.Failed)
	if c := condition(dv, cdiv1.DataVolumeRunning); c.Reason != "CloneNotAuthorized" {
		t.Errorf("Running is %+v", c)
	}
	f.nothingThere()
}

// nothingThere checks that the source's namespace has its claim and nothing else.
func (f *foreign) nothingThere() {
	f.t.Helper()
	var claims corev1.PersistentVolumeClaimList
	f.must(f.List(f.t.Context(), &claims, client.InNamespace(f.there.namespace)))
	if len(claims.Items) != 1 {
		f.t.Errorf("the source's namespace has the claims %+v", claims.Items)
	}
}

func sourceChanged(t *testing.T, f *foreign) {
	f.must(f.Create(t.Context(), &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Name: "golden", Namespace: f.namespace},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: f.there.namespace, Name: "base"}}},
	}))
	f.create("clone", "local", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "golden"}
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: f.there.namespace + "/other"}
	})
	dv := f.phase("clone", cdiv1.Failed)
	if c := condition(dv, cdiv1.DataVolumeRunning); c.Reason != "CloneNotAuthorized" {
		t.Errorf("Running is %+v", c)
	}
	f.nothingThere()
}

func goesEarly(t *testing.T, f *foreign) {
	dv := f.allowed()
	there := f.clonedThere(dv)
	f.must(f.Delete(t.Context(), dv))
	f.gone(there)
	f.until("the pod there is gone", func() bool {
		pod := &corev1.Pod{}
		err := f.Get(t.Context(), client.ObjectKey{Namespace: there.Namespace, Name: "importer-" + there.Name}, pod)
		return apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil
	})
}

func goesLate(t *testing.T, f *foreign) {
	dv := f.allowed()
	there := f.clonedThere(dv)
	uid := there.UID
	volume := f.volume(there)
	f.gone(there)
	f.until("the volume is the new claim's", func() bool { return f.now(volume).Spec.ClaimRef.Namespace == f.namespace })
	f.must(f.Delete(t.Context(), dv))
	f.until("the volume is given up", func() bool {
		return f.now(volume).Labels[datavolume.LabelCloneFor] == "" && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	})
	// A reservation without a uid would wait for a claim of that name for ever; one with a uid is released.
	if volume.Spec.ClaimRef.UID != uid {
		t.Errorf("the volume is reserved for %+v", volume.Spec.ClaimRef)
	}
}

func claimGoes(t *testing.T, f *foreign) {
	there := f.clonedThere(f.allowed())
	volume := f.volume(there)
	f.gone(there)
	f.until("the new claim is there", func() bool { return f.claim("clone").UID != "" })
	first := f.claim("clone")
	f.now(volume).Spec.ClaimRef.UID = first.UID // Kubernetes begins to bind them
	f.must(f.Update(t.Context(), volume))
	f.must(f.Delete(t.Context(), first))
	f.gone(first)
	f.until("the claim is there again", func() bool { uid := f.claim("clone").UID; return uid != "" && uid != first.UID })
	if ref := f.now(volume).Spec.ClaimRef; ref.Namespace != f.namespace || ref.Name != "clone" || ref.UID == first.UID {
		t.Errorf("the volume is reserved for %+v", ref)
	}
	f.bind("clone")
	f.phase("clone", cdiv1.Succeeded)
}

func dataSourceGoes(t *testing.T, f *foreign) {
	golden := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Name: "golden", Namespace: f.there.namespace}}
	golden.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: f.there.namespace, Name: "base"}
	f.must(f.Create(t.Context(), golden))
	dv := f.create("clone", "local", nil, func(dv *cdiv1.DataVolume) {
		dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: &golden.Namespace, Name: golden.Name}
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: f.there.namespace + "/base"}
	})
	there := f.clonedThere(dv)
	f.must(f.Delete(t.Context(), golden))
	f.pass(dv, &lagging.Client{})
	f.arrives(there)
	f.phase("clone", cdiv1.Succeeded)
}

func inTheWay(t *testing.T, f *foreign) {
	// Nobody knows a DataVolume's uid before it is there: it waits for its source first.
	source := &corev1.PersistentVolumeClaim{}
	f.must(f.Get(t.Context(), types.NamespacedName{Namespace: f.there.namespace, Name: "base"}, source))
	f.must(f.Delete(t.Context(), source))
	f.gone(source)
	dv := f.allowed()
	f.until("the DataVolume waits for its source", func() bool {
		return condition(f.dv("clone"), cdiv1.DataVolumeBound).Reason == "CloneSourceNotFound"
	})
	strange := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: f.there.namespace, Name: "clone-" + string(dv.UID)}, Spec: source.Spec}
	strange.Spec.VolumeName = ""
	f.must(f.Create(t.Context(), strange))
	f.source()
	f.until("the DataVolume says what is in its way", func() bool {
		return condition(f.dv("clone"), cdiv1.DataVolumeBound).Reason == "ErrResourceExists"
	})
	f.must(f.Delete(t.Context(), strange))
	f.gone(strange)
	f.clonedThere(dv)
}
