//go:build integration

package subresource_test

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func dumps(t *testing.T, c *cluster) {
	t.Helper()
	vm := c.vm(t, "dumped", virtv1.RunStrategyAlways)
	put := func(verb, body string, wantCode int, wantWords string) {
		t.Helper()
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/dumped/"+verb, body, wantCode, wantWords)
	}
	named := func(claim string) string { return fmt.Sprintf(`{"claimName":%q}`, claim) }
	put("memorydump", "", http.StatusBadRequest, "Memory dump requires claim name to be set")
	put("memorydump", named("big"), http.StatusNotFound, `virtualmachineinstance.kubevirt.io \"dumped\" not found`)
	put("removememorydump", "", http.StatusConflict, "can't remove memory dump association for vm dumped, no association found")
	vmi := c.vmi(t, vm)
	vmi.Spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("100Mi"))}
	must(t, c.Update(t.Context(), vmi))

	put("memorydump", named("big"), http.StatusNotFound, `persistentvolumeclaim.kubevirt.io \"big\" not found`)
	c.claim(t, "big", "220Mi", func(*corev1.PersistentVolumeClaimSpec) {})
	c.claim(t, "small", "200Mi", func(*corev1.PersistentVolumeClaimSpec) {})
	c.claim(t, "block", "1Gi", func(spec *corev1.PersistentVolumeClaimSpec) { spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	c.claim(t, "read", "1Gi", func(spec *corev1.PersistentVolumeClaimSpec) {
		spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	})
	c.claim(t, "dotted.name", "1Gi", func(*corev1.PersistentVolumeClaimSpec) {})
	put("memorydump", named("small"), http.StatusConflict, "pvc size [200Mi] should be bigger then [211Mi]")
	put("memorydump", named("block"), http.StatusConflict, "pvc should be filesystem pvc")
	put("memorydump", named("read"), http.StatusConflict, "pvc access mode can't be read only")
	put("memorydump", named("dotted.name"), http.StatusBadRequest, "a volume is called after pvc [dotted.name]")
	c.claim(t, "disk", "1Gi", func(*corev1.PersistentVolumeClaimSpec) {})
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "disk"}}}}
	must(t, c.Update(t.Context(), vm))
	put("memorydump", named("disk"), http.StatusConflict, "volume [root] of the virtual machine has that name, or is on it")

	put("memorydump", named("big"), http.StatusAccepted, "")
	c.wantRequest(t, vm, "big Associating false")
	put("memorydump", "", http.StatusConflict, "memory dump request for pvc [big] already in progress")
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	vm.Status.MemoryDumpRequest.Phase, vm.Status.MemoryDumpRequest.StartTimestamp = virtv1.MemoryDumpCompleted, new(metav1.Now())
	must(t, c.Status().Update(t.Context(), vm))
	put("memorydump", named("disk"), http.StatusConflict, "can't request memory dump for pvc [disk] while pvc [big] is still associated as the memory dump pvc")
	put("memorydump", "", http.StatusAccepted, "")
	c.wantRequest(t, vm, "big Associating false")

	put("removememorydump", "", http.StatusAccepted, "")
	c.wantRequest(t, vm, "big Dissociating true")
	put("removememorydump", "", http.StatusConflict, "memory dump remove request for pvc [big] already exists")
	put("memorydump", "", http.StatusConflict, "can't dump memory for pvc [big] a remove memory dump request is in progress")
}

func (c *cluster) wantRequest(t *testing.T, vm *virtv1.VirtualMachine, want string) {
	t.Helper()
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	got := "none"
	if request := vm.Status.MemoryDumpRequest; request != nil {
		got = fmt.Sprint(request.ClaimName, " ", request.Phase, " ", request.Remove)
	}
	if got != want {
		t.Errorf("the request is %s, want %s", got, want)
	}
}

func (c *cluster) claim(t *testing.T, name, size string, change func(*corev1.PersistentVolumeClaimSpec)) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	change(&claim.Spec)
	must(t, c.Create(t.Context(), claim))
}
