package virtualmachineexport

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
)

// pass is one over an export of a claim, a VM or a snapshot.
func pass(kind string, change func(*scope)) *scope {
	s := &scope{export: &exportv1.VirtualMachineExport{}, now: began}
	s.export.Name, s.export.Namespace, s.export.UID, s.export.CreationTimestamp = "e", "shop", "uid", metav1.NewTime(began)
	s.export.Spec.Source.Kind = kind
	s.volumes = []Volume{{Name: "root", Claim: "root", Disk: true, Bound: true}, {Name: "dumps", Claim: "dumps", Bound: true}}
	if change != nil {
		change(s)
	}
	return s
}

func running(ready corev1.ConditionStatus) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{annotationAuthority: "authority\n"}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return pod
}

func TestThePhaseSaysHowFarAnExportIs(t *testing.T) {
	for sentence, c := range map[string]struct {
		kind   string
		change func(*scope)
		want   string // phase, and each condition as type=status reason message
	}{
		"nothing was made": {KindClaim, nil, "Pending Ready=False Initializing; PVCReady=True PVCBound"},
		"the server starts": {
			KindClaim, func(s *scope) { s.pod = running(corev1.ConditionFalse) }, "Pending Ready=False PodPending; PVCReady=True PVCBound",
		},
		"the server has no node": {
			KindMachine, func(s *scope) {
				s.pod = &corev1.Pod{}
				s.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"}}
			}, "Pending Ready=False PodPending 0/1 nodes; PVCReady=True PVCBound",
		},
		"the server serves": {KindMachine, func(s *scope) { s.pod = running(corev1.ConditionTrue) }, "Ready Ready=True PodReady; PVCReady=True PVCBound"},
		"the server goes": {KindMachine, func(s *scope) {
			s.pod = running(corev1.ConditionTrue)
			s.pod.DeletionTimestamp = new(metav1.NewTime(began))
		}, "Pending Ready=False PodPending; PVCReady=True PVCBound"},
		"the server has ended": {KindClaim, func(s *scope) {
			s.pod = running(corev1.ConditionFalse)
			s.pod.Status.Phase = corev1.PodSucceeded
		}, "Terminated Ready=False PodCompleted; PVCReady=True PVCBound"},
		"a VM runs, and the server is there still": {KindMachine, func(s *scope) {
			s.pod = running(corev1.ConditionTrue)
			s.lack = &lack{reason: reasonInUse, message: "it runs"}
		}, "Pending Ready=False InUse it runs; PVCReady=True PVCBound"},
		"a VM without volumes": {KindMachine, func(s *scope) {
			s.volumes, s.lack = nil, &lack{reason: reasonMachineEmpty, message: "no volumes", empty: true}
		}, "Skipped Ready=False VMNoVolumes no volumes; PVCReady=False VMNoVolumes no volumes"},
		"a claim that is not there": {KindClaim, func(s *scope) {
			s.volumes, s.lack = nil, &lack{reason: reasonClaimNotFound, message: "not found"}
		}, "Pending Ready=False PVCNotFound not found; PVCReady=False PVCNotFound not found"},
		"a snapshot whose claims wait for the server": {KindSnapshot, func(s *scope) {
			s.volumes[0].Bound = false
			s.pod = running(corev1.ConditionFalse)
		}, "Pending Ready=False PodPending; VolumesCreated=False NotAllPVCsReady Not all PVCs are ready"},
		"a snapshot that serves": {
			KindSnapshot, func(s *scope) { s.pod = running(corev1.ConditionTrue) }, "Ready Ready=True PodReady; VolumesCreated=True AllPVCsReady",
		},
		"something stands in the way": {
			KindSnapshot, func(s *scope) { s.problem = &problem{"a quota"} }, "Pending Ready=False Unknown a quota; VolumesCreated=False NotAllPVCsCreated",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			status := newStatus(pass(c.kind, c.change))
			var conditions []string
			for _, one := range status.Conditions {
				conditions = append(conditions, strings.TrimSpace(string(one.Type)+"="+string(one.Status)+" "+one.Reason+" "+one.Message))
			}
			if got := string(status.Phase) + " " + strings.Join(conditions, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if (status.Links != nil) != (status.Phase == exportv1.Ready) {
				t.Errorf("links in phase %s: %v", status.Phase, status.Links)
			}
		})
	}
}

func TestLinksLeadToEveryVolumeInItsFormats(t *testing.T) {
	status := newStatus(pass(KindMachine, func(s *scope) {
		s.pod, s.machine, s.vm = running(corev1.ConditionTrue), "web", &virtv1.VirtualMachine{}
	}))
	link := status.Links.Internal
	var got []string
	for _, volume := range link.Volumes {
		for _, format := range volume.Formats {
			got = append(got, string(format.Format)+" "+format.Url)
		}
	}
	const at = "https://virt-export-e.shop.svc/volumes/"
	want := []string{"raw " + at + "root/disk.img", "gzip " + at + "root/disk.img.gz", "dir " + at + "dumps/dir", "tar.gz " + at + "dumps/disk.tar.gz"}
	if !slices.Equal(got, want) || link.Cert != "authority" || status.Links.External != nil {
		t.Errorf("got %q, by %q", got, link.Cert)
	}
	const defined = "https://virt-export-e.shop.svc/internal/manifests/"
	if len(link.Manifests) != 2 || link.Manifests[0].Url != defined+"all" || link.Manifests[1].Url != defined+"secret" {
		t.Errorf("the definition is at %+v", link.Manifests)
	}
	if *status.TokenSecretRef != "export-token-uid" || status.ServiceName != "virt-export-e" || *status.VirtualMachineName != "web" ||
		!status.TTLExpirationTime.Time.Equal(began.Add(2*time.Hour)) {
		t.Errorf("got %+v", status)
	}
}

func TestAConditionKeepsTheTimeOfItsChange(t *testing.T) {
	s := pass(KindClaim, nil)
	s.export.Status = new(newStatus(s))
	s.now = began.Add(time.Minute)
	if again := newStatus(s); !again.Conditions[0].LastTransitionTime.Time.Equal(began) || !again.Conditions[0].LastProbeTime.Time.Equal(began) {
		t.Errorf("nothing changed: %+v", again.Conditions[0])
	}
	s.pod = running(corev1.ConditionFalse)
	if again := newStatus(s); !again.Conditions[0].LastTransitionTime.Time.Equal(began) || !again.Conditions[0].LastProbeTime.Time.Equal(s.now) {
		t.Errorf("another reason: %+v", again.Conditions[0])
	}
	s.pod = running(corev1.ConditionTrue)
	if again := newStatus(s); !again.Conditions[0].LastTransitionTime.Time.Equal(s.now) {
		t.Errorf("it is ready: %+v", again.Conditions[0])
	}
}

func TestWhatAClaimHolds(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	for sentence, c := range map[string]struct {
		annotations map[string]string
		mode        *corev1.PersistentVolumeMode
		asDisk      bool
		want        bool
	}{
		"a disk, as it says":                   {annotations: map[string]string{datavolume.AnnotationContentType: "kubevirt"}, want: true},
		"files, as it says":                    {annotations: map[string]string{datavolume.AnnotationContentType: "archive"}, asDisk: true},
		"dumps of memory":                      {annotations: map[string]string{virtv1.PVCMemoryDumpAnnotation: "web.dump"}, asDisk: true},
		"who knows":                            {},
		"who knows, but a VM has it as a disk": {asDisk: true, want: true},
		"a block device":                       {mode: &block, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: c.annotations}}
			claim.Spec.VolumeMode = c.mode
			if got := volumeOf(claim, c.asDisk); got.Disk != c.want || got.Block != (c.mode != nil) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
