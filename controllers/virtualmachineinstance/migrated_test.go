package virtualmachineinstance

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
)

func TestAClaimIsAwaitedWhileADiskIsCopiedOntoIt(t *testing.T) {
	const copies = volumemigration.KindPod
	for name, c := range map[string]struct {
		pod, kind string
		phase     corev1.PodPhase
		waits     bool
	}{
		"it is being copied":             {volumemigration.PodName("shop"), copies, corev1.PodRunning, true},
		"the copy is about to begin":     {volumemigration.PodName("shop"), copies, corev1.PodPending, true},
		"it was copied":                  {volumemigration.PodName("shop"), copies, corev1.PodSucceeded, false},
		"it gets its volume":             {volumemigration.BinderName("shop"), copies, corev1.PodRunning, false},
		"another claim is being copied":  {volumemigration.PodName("other"), copies, corev1.PodRunning, false},
		"somebody has a pod of the name": {volumemigration.PodName("shop"), "importer", corev1.PodRunning, false},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := onClaim(nil)
			vmi.Namespace = "prod"
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: c.pod, Labels: map[string]string{names.LabelPod: c.kind}},
				Status:     corev1.PodStatus{Phase: c.phase},
			}
			r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(pod).Build()}
			missing, err := r.waitForMigrations(t.Context(), &scope{vmi: vmi, volumes: []volumeState{{name: "data", claim: "shop"}}})
			if err != nil || (len(missing) > 0) != c.waits {
				t.Fatalf("%+v, %v", missing, err)
			}
			if c.waits && (missing[0].reason != ReasonClaimInUse || !strings.Contains(missing[0].message, "PVC shop is being filled")) {
				t.Errorf("it says %+v", missing[0])
			}
		})
	}
}
