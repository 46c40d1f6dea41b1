package virtualmachineinstance

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/population"
)

func claim(phase corev1.PersistentVolumeClaimPhase, class string) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Status.Phase = phase
	if class != "" {
		pvc.Spec.StorageClassName = new(class)
	}
	return pvc
}

// populated is a claim with a source; use says how it is filled, and volume is its volume.
func populated(use, volume string) *corev1.PersistentVolumeClaim {
	pvc := claim(corev1.ClaimPending, "fast")
	pvc.UID, pvc.Spec.VolumeName = "1", volume
	if volume != "" {
		pvc.Status.Phase = corev1.ClaimBound
	}
	pvc.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "s"}
	if use != "" {
		pvc.Annotations = map[string]string{population.AnnotationUse: use, population.AnnotationFilledBy: population.PrimeName(pvc)}
	}
	return pvc
}

// noted is a claim made just now that says so: names and values by turns.
func noted(pvc *corev1.PersistentVolumeClaim, notes ...string) *corev1.PersistentVolumeClaim {
	pvc.CreationTimestamp = metav1.Now()
	if pvc.Annotations == nil {
		pvc.Annotations = map[string]string{}
	}
	for n := 0; n < len(notes); n += 2 {
		pvc.Annotations[notes[n]] = notes[n+1]
	}
	return pvc
}

func class(mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	c := &storagev1.StorageClass{Provisioner: "disks.example", VolumeBindingMode: new(mode)}
	c.Name = "fast"
	return c
}

func dataVolume(phase cdiv1.DataVolumePhase, progress, message string) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{}
	dv.Name = "d"
	dv.Status.Phase, dv.Status.Progress = phase, cdiv1.DataVolumeProgress(progress)
	if message != "" {
		dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Message: message}}
	}
	return dv
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		volume volumeState
		want   need
		words  string
	}{
		"a bound claim is enough":            {volumeState{pvc: claim(corev1.ClaimBound, "fast")}, needNothing, ""},
		"no claim":                           {volumeState{}, needHelp, "PVC d not found"},
		"no DataVolume":                      {volumeState{fromDataVolume: true}, needHelp, "DataVolume d not found"},
		"a claim without its DataVolume":     {volumeState{fromDataVolume: true, pvc: claim(corev1.ClaimBound, "fast")}, needNothing, ""},
		"a claim for the launcher to bind":   {volumeState{pvc: claim(corev1.ClaimPending, "fast"), class: class(storagev1.VolumeBindingWaitForFirstConsumer)}, needNothing, ""},
		"a claim that is being provisioned":  {volumeState{pvc: claim(corev1.ClaimPending, "fast"), class: class(storagev1.VolumeBindingImmediate)}, needTime, "waiting for provisioner disks.example of StorageClass fast"},
		"a class that does not exist":        {volumeState{pvc: claim(corev1.ClaimPending, "slow")}, needHelp, "StorageClass slow does not exist"},
		"no class and no default":            {volumeState{pvc: claim(corev1.ClaimPending, "")}, needHelp, "no StorageClass"},
		"a claim that no populator has seen": {volumeState{pvc: populated("", ""), class: class(storagev1.VolumeBindingWaitForFirstConsumer)}, needTime, "VolumeImportSource has yet to be looked at"},
		"a claim that gets another's volume": {volumeState{pvc: populated("true", ""), class: class(storagev1.VolumeBindingWaitForFirstConsumer)}, needNothing, ""},
		"a claim that is filled itself":      {volumeState{pvc: populated("false", "v")}, needTime, "being filled by its VolumeImportSource"},
		"a claim that was just bound":        {volumeState{pvc: noted(populated("", "v"), "pv.kubernetes.io/bound-by-controller", "yes")}, needTime, "VolumeImportSource has yet to be looked at"},
		"a claim that is refused":            {volumeState{pvc: noted(populated("", "v"), population.AnnotationRefused, "prime-1", population.AnnotationMessage, "no driver")}, needHelp, "not filled by its VolumeImportSource: no driver"},
		"a claim whose import failed":        {volumeState{pvc: noted(populated("true", ""), "cdi.kubevirt.io/storage.pod.phase", "Failed", population.AnnotationMessage, "checksum"), class: class(storagev1.VolumeBindingWaitForFirstConsumer)}, needHelp, "checksum"},
		"a claim that is to get a volume":    {volumeState{pvc: noted(populated("true", ""), population.AnnotationProgress, "45.34%"), class: class(storagev1.VolumeBindingImmediate)}, needTime, "being filled by its VolumeImportSource at 45 %"},
		"a lost claim":                       {volumeState{pvc: claim(corev1.ClaimLost, "fast")}, needHelp, "lost its volume"},
		"a filled DataVolume":                {volumeState{dataVolume: dataVolume(cdiv1.Succeeded, "", ""), pvc: claim(corev1.ClaimBound, "fast")}, needNothing, ""},
		"an import says how far it is":       {volumeState{dataVolume: dataVolume(cdiv1.ImportInProgress, "40.13%", "")}, needTime, "import of DataVolume d at 40 %"},
		"an import says why it waits":        {volumeState{dataVolume: dataVolume(cdiv1.ImportInProgress, "N/A", "404 Not Found")}, needTime, "import of DataVolume d: 404 Not Found"},
		"a clone":                            {volumeState{dataVolume: dataVolume(cdiv1.CSICloneInProgress, "", "")}, needTime, "clone of DataVolume d"},
		"a failed import":                    {volumeState{dataVolume: dataVolume(cdiv1.Failed, "", "wrong checksum")}, needHelp, "DataVolume d failed: wrong checksum"},
		"a DataVolume without a node":        {volumeState{dataVolume: dataVolume(cdiv1.WaitForFirstConsumer, "", "")}, needConsumer, "waits for a node"},
	} {
		t.Run(name, func(t *testing.T) {
			c.volume.claim = "d"
			got := judge(c.volume)
			if got.need != c.want || !strings.Contains(got.message, c.words) {
				t.Errorf("got need %d and %q, want %d and %q", got.need, got.message, c.want, c.words)
			}
			if got.need != needNothing && got.reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestAnOverlayIsOnAClaimThatItOnlyReads(t *testing.T) {
	source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "golden"}
	volume := virtv1.Volume{VolumeSource: virtv1.VolumeSource{Ephemeral: &virtv1.EphemeralVolumeSource{PersistentVolumeClaim: source}}}
	if claim, fromDataVolume := claimOf(volume); claim != "golden" || fromDataVolume {
		t.Errorf("it is on %q (%v)", claim, fromDataVolume)
	}
	got := claims([]volumeState{{name: "root", claim: "golden", base: true, pvc: claim(corev1.ClaimBound, "fast")}})
	if want := (pod.Claim{Name: "golden", Base: true}); got["root"] != want {
		t.Errorf("got %+v, want %+v", got["root"], want)
	}
}
