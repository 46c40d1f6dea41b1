package subresource

import (
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/upload"
)

// Of a claim that is there a token names more than the name, which another may have tomorrow.
func TestATokenNamesTheClaimThatIsThere(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "disk", UID: "5f0a"}}
	s := &Server{live: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(claim).Build()}
	request := httptest.NewRequest("POST", "/", nil)
	request.SetPathValue("namespace", "prod")
	for name, want := range map[string]upload.Target{
		"disk":  {Namespace: "prod", Name: "disk", UID: "5f0a"},
		"later": {Namespace: "prod", Name: "later"},
	} {
		if got, err := s.uploadTarget(request, name); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}
