//go:build integration

package dataimportcron

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/imageversion"
)

// TestAnImageThatNodesCannotPullMakesWay has a newer image come while the kubelet tries to pull the one before.
func TestAnImageThatNodesCannotPullMakesWay(t *testing.T) {
	l := newLife(t)
	for name, c := range map[string]struct {
		reason string // of the import's condition Running
		goes   bool
	}{
		"pull": {"ImagePullBackOff", true}, "again": {"ErrImagePull", true}, "creating": {"ContainerCreating", false},
	} {
		l.name = name
		l.imported()
		cron, next := &cdiv1.DataImportCron{}, imageversion.Digest("next")
		l.found(cron)
		dv := &cdiv1.DataVolume{}
		l.found(dv)
		dv.Status.Phase = cdiv1.ImportScheduled
		dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: c.reason, Message: "why"}}
		l.must(l.direct.Status().Update(t.Context(), dv))
		cron.Annotations[AnnotationDesired] = next
		l.must(l.direct.Update(t.Context(), cron))
		l.pass(3)
		if goes := l.goes(dv); goes != c.goes {
			t.Errorf("%s: the image before goes: %t", c.reason, goes)
		}
		if c.goes { // and its claim with it, by the garbage collector
			claim := &corev1.PersistentVolumeClaim{}
			l.found(claim)
			claim.Finalizers = nil
			l.must(l.direct.Update(t.Context(), claim))
			l.must(client.IgnoreNotFound(l.direct.Delete(t.Context(), claim)))
			l.pass(2)
		}
		newer := &cdiv1.DataVolume{}
		newer.Namespace, newer.Name = l.namespace, nameOfImport(cron, next)
		if begins := !l.goes(newer); begins != c.goes {
			t.Errorf("%s: the newer one is imported: %t", c.reason, begins)
		}
	}
}
