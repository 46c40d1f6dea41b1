//go:build integration

package taskpod

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

func TestTheWebhookLooksUpTheClaim(t *testing.T) {
	config := apiserver.Start(t)
	live := clientOf(t, config)
	for name, mode := range map[string]corev1.PersistentVolumeMode{"disk": corev1.PersistentVolumeBlock, "file": corev1.PersistentVolumeFilesystem} {
		if err := live.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	nobody := rest.AnonymousClientConfig(config)
	for name, c := range map[string]struct {
		reader   client.Reader
		claim    string
		device   bool
		warnings int
	}{
		"a block claim":           {live, "disk", true, 0},
		"a file system's claim":   {live, "file", false, 0},
		"a claim that is missing": {live, "none", false, 1},
		"no rights":               {clientOf(t, nobody), "disk", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(base, "claimName: disk", "claimName: "+c.claim)))
			if err != nil {
				t.Fatal(err)
			}
			response := Handler(c.reader).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Namespace: "default", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
			}})
			if !response.Allowed || len(response.Warnings) != c.warnings {
				t.Errorf("allowed %t, warnings %q", response.Allowed, response.Warnings)
			}
			patch, err := json.Marshal(response.Patches)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(patch), "/dev/targetpvc"); got != c.device {
				t.Errorf("a device: %t; patch %s", got, patch)
			}
			if !strings.Contains(string(patch), "fsGroup") {
				t.Errorf("no group: %s", patch)
			}
		})
	}
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
