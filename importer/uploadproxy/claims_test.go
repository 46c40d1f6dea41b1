package uploadproxy_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/importer/uploadproxy"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/upload"
)

// waiting is a claim that says what annotations do; with a source it is filled by an upload, else it is a DataVolume's.
func waiting(name string, source bool, annotations map[string]string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, Annotations: annotations}}
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: name, UID: "2", Controller: new(true)}}
	if source {
		claim.UID, claim.OwnerReferences = "1", nil
		claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: "VolumeUploadSource", Name: "s"}
	}
	return claim
}

func TestAnImageGoesToWhatIsFilledForItsClaim(t *testing.T) {
	const phase = "cdi.kubevirt.io/storage.pod.phase"
	chosen := func(use, ready string) map[string]string {
		return map[string]string{population.AnnotationFilledBy: "prime-1", population.AnnotationUse: use, upload.AnnotationReady: ready}
	}
	ready := map[string]string{upload.AnnotationTarget: "", upload.AnnotationReady: "true"}
	plain := func(reached map[string]string) *corev1.PersistentVolumeClaim {
		claim := waiting("disk", true, maps.Clone(reached))
		claim.Annotations[upload.AnnotationTarget], claim.Spec.DataSourceRef = "", nil
		return claim
	}
	going := waiting("disk", false, ready)
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
	restored := plain(ready)
	restored.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}
	for name, c := range map[string]struct {
		claims   []client.Object
		to, fail string
	}{
		"a DataVolume's":                    {[]client.Object{waiting("disk", false, ready)}, "disk", ""},
		"another for it":                    {[]client.Object{waiting("disk", true, chosen("true", "true"))}, "prime-1", ""},
		"the claim itself, by its server":   {[]client.Object{waiting("disk", true, chosen("false", "true"))}, "prime-1", ""},
		"it is filled":                      {[]client.Object{waiting("disk", true, map[string]string{phase: "Succeeded"})}, "", "already finished uploading"},
		"an annotated claim, by its server": {[]client.Object{plain(chosen("false", "true"))}, "prime-1", ""},
		"an annotated claim is filled":      {[]client.Object{plain(map[string]string{phase: "Succeeded"})}, "", "already finished uploading"},
		"an annotated claim of a snapshot":  {[]client.Object{restored}, "", "has a dataSource"},
		"a claim that goes":                 {[]client.Object{going}, "", "is being deleted"},
		"nothing":                           {nil, "", "doesn't exist"},
		"no upload":                         {[]client.Object{waiting("disk", false, nil)}, "", "is not an upload target"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &uploadproxy.Cluster{Client: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(c.claims...).Build()}
			to, err := cluster.AwaitReady(t.Context(), upload.Target{Namespace: "prod", Name: "disk"})
			switch {
			case c.fail == "" && (err != nil || to.Name != c.to):
				t.Errorf("it goes to %q: %v", to.Name, err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
				t.Errorf("got %v, want %q", err, c.fail)
			}
		})
	}
}

func TestARequestWaitsForWhatIsFilledForItsClaim(t *testing.T) {
	claim := waiting("disk", true, map[string]string{upload.AnnotationReady: "true"}) // as it was copied
	base := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(claim).Build()
	watched := interceptor.NewClient(base, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			changes, err := c.Watch(ctx, list, options...)
			claim.Annotations = map[string]string{population.AnnotationFilledBy: "prime-1", population.AnnotationUse: "true", upload.AnnotationReady: "true"}
			if err := c.Update(ctx, claim); err != nil {
				t.Error(err)
			}
			return changes, err
		},
	})
	cluster := &uploadproxy.Cluster{Client: watched}
	to, err := cluster.AwaitReady(t.Context(), upload.Target{Namespace: "prod", Name: "disk"})
	if err != nil || to.Name != "prime-1" || len(claim.Annotations) != 3 {
		t.Errorf("it goes to %q: %v", to.Name, err)
	}
}

// A claim that was deleted and made again under its name is another one.
func TestATokenIsForOneClaim(t *testing.T) {
	claim := waiting("disk", false, map[string]string{upload.AnnotationTarget: "", upload.AnnotationReady: "true"})
	claim.UID = "second"
	cluster := &uploadproxy.Cluster{Client: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(claim).Build()}
	for uid, good := range map[types.UID]bool{"first": false, "second": true, "": true} { // "": it was asked for before there was one
		_, err := cluster.AwaitReady(t.Context(), upload.Target{Namespace: "prod", Name: "disk", UID: uid})
		if (err == nil) != good {
			t.Errorf("for claim %q: %v", uid, err)
		}
	}
	s := newStage(t)
	s.proxy.Claims = cluster
	token, err := upload.Sign(s.key, upload.Target{Namespace: "prod", Name: "disk", UID: "first"}, time.Now())
	must(t, err)
	if code, said, _ := s.send(t, http.MethodPost, "/v1beta1/upload", token, strings.NewReader("x"), nil); code != http.StatusUnauthorized || !strings.Contains(said, "earlier claim of the name") {
		t.Errorf("%d %s", code, said)
	}
}
