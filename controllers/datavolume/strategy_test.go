package datavolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// shelf is a reconciler of a cluster that has objects.
func shelf(objects ...client.Object) *Reconciler {
	c := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()
	return &Reconciler{Client: c, live: c}
}

// storage is a StorageClass, with what its profile says when strategy is not empty.
func storage(name, provisioner string, strategy cdiv1.CDICloneStrategy, snapshots string) []client.Object {
	objects := []client.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}}
	if strategy != "" {
		profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: cdiv1.StorageProfileStatus{CloneStrategy: &strategy}}
		if snapshots != "" {
			profile.Status.SnapshotClass = &snapshots
		}
		objects = append(objects, profile)
	}
	return objects
}

func TestHowClonesAreMade(t *testing.T) {
	cdi := func(override *cdiv1.CDICloneStrategy) client.Object {
		return &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}, Spec: cdiv1.CDISpec{CloneStrategyOverride: override}}
	}
	for name, c := range map[string]struct {
		objects    []client.Object
		class      string
		want       cdiv1.CDICloneStrategy
		snapshots  string
		driverless bool
	}{
		"nothing says it":                    {storage("fast", "example.com", "", ""), "fast", "", "", false},
		"the profile does":                   {storage("fast", "example.com", "csi-clone", "snaps"), "fast", "csi-clone", "snaps", false},
		"a CDI object that does not":         {append(storage("fast", "example.com", "csi-clone", ""), cdi(nil)), "fast", "csi-clone", "", false},
		"the CDI object knows better":        {append(storage("fast", "example.com", "csi-clone", "snaps"), cdi(new(cdiv1.CloneStrategySnapshot))), "fast", "snapshot", "snaps", false},
		"it does where there is no profile":  {append(storage("fast", "example.com", "", ""), cdi(new(cdiv1.CloneStrategyHostAssisted))), "fast", "copy", "", false},
		"nobody provisions it":               {append(storage("hand", "kubernetes.io/no-provisioner", "csi-clone", ""), cdi(new(cdiv1.CloneStrategyCsiClone))), "hand", "", "", true},
		"there is no such class":             {nil, "manual", "", "", true},
		"it is of no class":                  {nil, "", "", "", true},
		"the source's class when none is so": {storage("fast", "example.com", "copy", ""), "-", "copy", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dv := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{StorageClassName: &c.class}}}
			if c.class == "-" {
				dv.Spec.PVC.StorageClassName = nil
			}
			in := claimInput{DataVolume: dv, Source: &origin{class: new("fast")}, Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
			s := &scope{dv: dv, class: in.Class}
			if err := shelf(c.objects...).chooseStrategy(t.Context(), s, &in); err != nil {
				t.Fatal(err)
			}
			if in.Strategy != c.want || in.SnapshotClass != c.snapshots || in.Source.driverless != c.driverless {
				t.Errorf("clones are made by %q, with snapshots of class %q, driverless %t", in.Strategy, in.SnapshotClass, in.Source.driverless)
			}
			if s.class != in.Class || s.class != nil && s.class.Name == "default" {
				t.Errorf("the clone has the class %+v", s.class)
			}
		})
	}
}

func TestWhatNoDriverClones(t *testing.T) {
	volume := func(name string, source corev1.PersistentVolumeSource) client.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
	}
	r := shelf(
		volume("driven", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com"}}),
		volume("plain", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disks"}}),
	)
	for name, want := range map[string]bool{"": false, "driven": false, "plain": true, "gone": false} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}}
		if got, err := r.driverless(t.Context(), claim); err != nil || got != want {
			t.Errorf("volume %q is driverless: %t, %v", name, got, err)
		}
	}
}

// A clone that is brought goes on as it began, whatever is said of clones meanwhile.
func TestHowACloneWasBegun(t *testing.T) {
	copied := func(phase string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			AnnotationCopiedFrom: "images/before", AnnotationPodPhase: phase,
		}}}
	}
	marked := func(notes map[string]string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: notes}}
	}
	cloned := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "images"}}
	cloned.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: "before"}
	now := &origin{Source: clonesource.Source{Snapshot: client.ObjectKey{Namespace: "images", Name: "now"}}}
	for name, c := range map[string]struct {
		way     way
		manner  manner
		settled bool
	}{
		"not yet":                             {way{}, notBegun, false},
		"by a driver":                         {way{there: cloned}, byDriver, true},
		"by a driver, which is done":          {way{there: cloned, volume: marked(map[string]string{annotationBroughtFrom: "images/before"})}, byDriver, true},
		"by a driver, only the volume's left": {way{volume: marked(map[string]string{annotationBroughtFrom: "images/before"})}, byDriver, true},
		"by a copy":                           {way{there: copied("")}, byCopy, false},
		"by a copy that has failed":           {way{there: copied(phaseFailed)}, byCopy, false},
		"by a copy, which is done":            {way{there: copied(phaseSucceeded)}, byCopy, true},
		"by a copy, only the volume's left":   {way{volume: marked(map[string]string{annotationBroughtFrom: "images/before", AnnotationCopiedFrom: "images/before"})}, byCopy, true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.way.manner() != c.manner || c.way.settled() != c.settled {
				t.Errorf("it was begun in manner %d, settled %t", c.way.manner(), c.way.settled())
			}
			if from := c.way.source(now); c.settled && (from.Mark() != "images/before" || now.Mark() == from.Mark()) {
				t.Errorf("it is of %s", from)
			}
			dv := &cdiv1.DataVolume{}
			in := claimInput{DataVolume: dv, Source: &origin{class: new("fast")}, Strategy: cdiv1.CloneStrategyHostAssisted, Begun: c.way.manner()}
			if copied, _ := copiedWhy(in, &corev1.PersistentVolumeClaim{}); copied != (c.manner != byDriver) {
				t.Errorf("onto a class that is copied onto it goes on as a copy: %t", copied)
			}
			in.Strategy = cdiv1.CloneStrategyCsiClone
			if copied, _ := copiedWhy(in, &corev1.PersistentVolumeClaim{}); copied != (c.manner == byCopy) {
				t.Errorf("onto a class whose driver clones it goes on as a copy: %t", copied)
			}
		})
	}
}
