package admission

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// claimOf is a claim with the label, as the API server hands it to webhooks.
func claimOf(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{datavolume.LabelApplyProfile: "true"}}}
	claim.Spec.VolumeMode = new(cdiv1.PersistentVolumeFromStorageProfile)
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if change != nil {
		change(claim)
	}
	return claim
}

func TestClaimsAreCompletedByTheirStorageProfile(t *testing.T) {
	class := func(name string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/" + name}
	}
	blocks, silent := class("blocks"), class("silent")
	blocks.Annotations = map[string]string{names.AnnotationDefaultVirtClass: "true"}
	profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "blocks"}}
	profile.Status.ClaimPropertySets = []cdiv1.ClaimPropertySet{{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: new(corev1.PersistentVolumeBlock),
	}}
	disabled := &cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: names.CDIConfigName}}
	disabled.Spec.WebhookPvcRendering = cdiv1.WebhookPvcRenderingDisabled
	for name, c := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		others []client.Object
		user   string
		// want are class, access mode and volume mode; refused is what is said instead.
		want, refused string
	}{
		"what it leaves to the profile": {claim: claimOf(nil), want: "blocks ReadWriteMany Block"},
		"what it says itself": {claim: claimOf(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes, c.Spec.VolumeMode = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, new(corev1.PersistentVolumeFilesystem)
		}), want: "blocks ReadWriteOnce Filesystem"},
		"a class whose profile says nothing": {claim: claimOf(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("silent") }), refused: "StorageProfile silent"},
		"without the label": {claim: claimOf(func(c *corev1.PersistentVolumeClaim) {
			c.Labels, c.Spec.VolumeMode = nil, new(corev1.PersistentVolumeFilesystem)
		}), want: " none Filesystem"},
		"where that is disabled":   {claim: claimOf(nil), others: []client.Object{disabled}, want: " none FromStorageProfile"},
		"of virt-controller's own": {claim: claimOf(nil), user: "system:serviceaccount:slipway:virt-controller", want: " none FromStorageProfile"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(append(c.others, blocks, silent, profile)...).Build()
			raw, err := json.Marshal(c.claim)
			if err != nil {
				t.Fatal(err)
			}
			answer := Handlers(reader, reader, "slipway", nil)["/persistentvolumeclaims-mutate"].Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}, UserInfo: authenticationv1.UserInfo{Username: c.user},
			}})
			if c.refused != "" || !answer.Allowed {
				if answer.Allowed || c.refused == "" || !strings.Contains(answer.Result.Message, c.refused) {
					t.Errorf("got %+v, want %q refused", answer.AdmissionResponse, c.refused)
				}
				return
			}
			if got := shown(t, raw, answer); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// shown are class, access mode and volume mode of a claim as the webhook leaves it.
func shown(t *testing.T, raw []byte, answer admission.Response) string {
	t.Helper()
	if len(answer.Patches) > 0 {
		operations, err := json.Marshal(answer.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(operations)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			t.Fatal(err)
		}
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := json.Unmarshal(raw, claim); err != nil {
		t.Fatal(err)
	}
	class, access := "", "none"
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if len(claim.Spec.AccessModes) > 0 {
		access = string(claim.Spec.AccessModes[0])
	}
	return class + " " + access + " " + string(*claim.Spec.VolumeMode)
}
