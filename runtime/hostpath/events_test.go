//go:build integration

package hostpath_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// event waits for a warning about a claim that has no volume yet.
func (n node) event(t *testing.T, claim *corev1.PersistentVolumeClaim, text string) {
	t.Helper()
	n.warned(t, claim, "ProvisioningFailed", text)
}

// volumeEvent waits for a warning about a volume that is to be deleted.
func (n node) volumeEvent(t *testing.T, volume *corev1.PersistentVolume, text string) {
	t.Helper()
	n.warned(t, volume, "VolumeFailedDelete", text)
}

func (n node) warned(t *testing.T, object client.Object, reason, text string) {
	t.Helper()
	var events corev1.EventList
	eventually(t, object.GetName()+" has an event with "+text, func() bool {
		check(t, n.List(t.Context(), &events))
		for _, event := range events.Items {
			if event.InvolvedObject.UID == object.GetUID() && event.Reason == reason && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}
