//go:build integration

package controllers

import (
	"fmt"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// A volume is moved by its change alone: the API server, virt-api and the controllers do the rest, and only virt-controller can say
// that it is done.
func TestAVolumeIsMovedByItsChange(t *testing.T) {
	c := start(t)
	user, controller := as(t, c.config, "jane"), as(t, c.config, "system:serviceaccount:"+installed+":virt-controller")
	key := client.ObjectKey{Namespace: c.namespace(t), Name: "moved"}
	for _, name := range []string{"a", "b"} {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
		must(t, c.Create(t.Context(), claim))
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: claim.Spec.Resources.Requests}
		must(t, c.Status().Update(t.Context(), claim))
	}
	vm := fixture.VM(key.Namespace, key.Name, fixture.Claim("root", "a"), fixture.Strategy(virtv1.RunStrategyHalted))
	vm.Spec.UpdateVolumesStrategy = new(virtv1.UpdateVolumesStrategyMigration)
	must(t, user.Create(t.Context(), vm))
	to := func(claim string) client.Patch {
		return client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"spec":{"runStrategy":"Always","template":{"spec":{"volumes":[{"name":"root","persistentVolumeClaim":{"claimName":%q}}]}}}}`, claim))
	}
	says := func(note string) client.Patch {
		return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, volumemigration.AnnotationNote, note))
	}

	must(t, user.Patch(t.Context(), vm, says(`"{\"root\":{\"claim\":\"secret\",\"generation\":1}}"`)))
	if volumemigration.Pending(vm) {
		t.Errorf("a user has made up %v", vm.Annotations)
	}
	must(t, user.Patch(t.Context(), vm, to("b")))
	noted := vm.Annotations[volumemigration.AnnotationNote]
	if want := fmt.Sprintf(`{"root":{"claim":"a","generation":%d}}`, vm.Generation); noted != want {
		t.Errorf("noted is %s, want %s", noted, want)
	}
	must(t, user.Patch(t.Context(), vm, says("null")))
	if vm.Annotations[volumemigration.AnnotationNote] != noted {
		t.Errorf("a user has made it %v", vm.Annotations)
	}
	p := c.podOf(t, key, volumemigration.KindPod)
	c.vmIs(t, key, virtv1.VirtualMachineStatusProvisioning)
	c.report(t, p, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "copy", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: `{"digest":"new"}`, FinishedAt: metav1.Now()},
		}}}
	})
	c.gone(t, p)
	claim := &corev1.PersistentVolumeClaim{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "b"}, claim))
	if record := volumemigration.RecordOf(claim.Annotations); record == nil || record.Claim != "a" {
		t.Errorf("the claim says %v", claim.Annotations)
	}
	must(t, controller.Patch(t.Context(), vm, says("null"))) // the controller itself is somebody else here
	gomega.NewWithT(t).Eventually(func() (string, error) {
		vmi := &virtv1.VirtualMachineInstance{}
		if err := c.Get(t.Context(), key, vmi); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		return vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, nil
	}, bound, "50ms").Should(gomega.Equal("b"), "the VM runs")
	err := user.Patch(t.Context(), vm, to("a"))
	gomega.NewWithT(t).Expect(err).To(gomega.MatchError(gomega.And(
		gomega.ContainSubstring("spec.template.spec.volumes[0]"), gomega.ContainSubstring("stop the VM first"))))
}
