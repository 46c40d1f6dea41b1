//go:build integration

package dataimportcron_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/dataimportcron"
)

// publish makes a claim of a name in a namespace.
func (w *world) publish(namespace, name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	w.must(w.Create(w.t.Context(), claim))
	return claim
}

// TestAClaimOfAnotherNamespaceIsImportedWithTheAccountsRights has the rights come, and go before another claim comes.
func TestAClaimOfAnotherNamespaceIsImportedWithTheAccountsRights(t *testing.T) {
	w := start(t)
	golden := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "golden-"}}
	w.must(w.Create(t.Context(), golden))
	said := func() string {
		for _, c := range w.cron("cron").Status.Conditions {
			if c.Type == cdiv1.DataImportCronUpToDate {
				return c.Reason + " " + c.Message
			}
		}
		return ""
	}
	denied := func() bool {
		return strings.HasPrefix(said(), "NotAuthorized Not authorized to create DataVolume: User system:serviceaccount:"+w.namespace+":importer has insufficient permissions")
	}
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.ServiceAccountName = new("importer")
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: golden.Name, Name: "published"}}
	})
	w.until("it says that it may not", denied)
	w.until("an event says it, too", func() bool {
		var all eventsv1.EventList
		w.must(w.List(t.Context(), &all, client.InNamespace(w.namespace)))
		return slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool { return e.Reason == "NotAuthorized" && e.Type == corev1.EventTypeWarning })
	})
	first := w.publish(golden.Name, "published")
	w.later(2*time.Hour, "", "cron")
	if cron := w.cron("cron"); len(cron.Status.CurrentImports) > 0 || cron.Annotations[dataimportcron.AnnotationDesired] != "" || !denied() {
		t.Errorf("without rights it is %+v, %+v", cron.Annotations, cron.Status)
	}

	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: golden.Name, Name: "clone"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: golden.Name, Name: "clone"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clone"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "importer"}},
	}
	w.must(w.Create(t.Context(), role))
	w.must(w.Create(t.Context(), binding))
	w.until("it is imported", func() bool {
		w.later(time.Second, "", "cron") // a right brings no event
		return len(w.cron("cron").Status.CurrentImports) > 0
	})
	dv := w.importing("cron")
	if from := dv.Spec.Source.PVC; from == nil || from.Namespace != golden.Name || from.Name != "published" {
		t.Errorf("what is imported is %+v", dv.Spec.Source)
	}
	digest := w.cron("cron").Annotations[dataimportcron.AnnotationDesired]

	w.must(w.Delete(t.Context(), binding))
	w.must(w.Delete(t.Context(), dv))
	w.must(w.Delete(t.Context(), first))
	w.must(client.IgnoreNotFound(w.Patch(t.Context(), first, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	w.publish(golden.Name, "published")
	w.until("it may not any more", func() bool {
		w.later(2*time.Hour, "", "cron")
		return denied()
	})
	if now := w.cron("cron").Annotations[dataimportcron.AnnotationDesired]; now != digest {
		t.Errorf("without rights it was told of another claim: %s, before %s", now, digest)
	}

	// Nor is what somebody else says is to be imported.
	w.must(w.Patch(t.Context(), w.cron("cron"), client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+dataimportcron.AnnotationDesired+`":"sha256:0123456789abcdef0123456789abcdef"}}}`))))
	w.later(2*time.Hour, "", "cron")
	w.until("it may not import another one either", denied)
	var all cdiv1.DataVolumeList
	w.must(w.List(t.Context(), &all, client.InNamespace(w.namespace)))
	for _, other := range all.Items {
		if strings.HasSuffix(other.Name, "0123456789ab") {
			t.Errorf("%s was made", other.Name)
		}
	}
}
