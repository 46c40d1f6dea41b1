//go:build integration

package stepcache

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestSharing uses the entries of one namespace from another, with the rights of a ServiceAccount
// there; the tests play the DataVolume controller.
func TestSharing(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, "../../controllers/hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	admin, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	images, builds := newWorld(t, admin), newWorld(t, admin)
	account := *config
	account.Impersonate.UserName = "system:serviceaccount:" + builds.namespace + ":default"
	account.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + builds.namespace, "system:authenticated"}
	limited, err := client.NewWithWatch(&account, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	images.completes(cdiv1.Succeeded)
	builds.completes(cdiv1.Succeeded)
	grant(t, admin, builds.namespace, builds.namespace, []rbacv1.PolicyRule{
		{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{ConfigName}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"watch"}},
	})
	_, lock := images.takes(images.run("there"), Query{Key: images.key})
	there := images.saves(images.run("there"), lock)

	var told bytes.Buffer
	run := func(uid string) *Store {
		s := builds.run(uid)
		s.Client, s.Log = limited, slog.New(slog.NewTextHandler(&told, nil))
		return s
	}
	query := Query{Key: builds.key}

	// Nobody has asked for the other namespace's entries.
	nothing(t, run("first"), query)
	if told.Len() > 0 {
		t.Errorf("the log says %s", told.String())
	}

	// The other namespace has not allowed it.
	must(t, admin.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: builds.namespace, Name: ConfigName}, Data: map[string]string{ConfigFrom: images.namespace},
	}))
	nothing(t, run("second"), query)
	want := "kubectl create rolebinding step-cache-" + builds.namespace + " -n " + images.namespace + " --clusterrole=" + ShareRole
	if !strings.Contains(told.String(), want) {
		t.Errorf("the log says %s, want %s", told.String(), want)
	}

	// It has.
	grant(t, admin, images.namespace, builds.namespace, []rbacv1.PolicyRule{
		{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes"}, Verbs: []string{"get", "list"}},
	})
	third := run("third")
	entry, err := third.FindOrBring(t.Context(), query)
	must(t, err)
	if entry == nil || entry.Namespace != builds.namespace || entry.From != images.namespace+"/"+there.Name || entry.Digest != there.Digest || !entry.Filled.Equal(there.Filled) {
		t.Fatalf("got %+v, want a clone of %+v", entry, there)
	}
	if again, err := run("fourth").FindOrBring(t.Context(), query); err != nil || again == nil || again.Name != entry.Name {
		t.Errorf("the next run got %+v, %v, want the entry that is there now", again, err)
	}

	// What was found to be another content is removed here, stays there, and is not brought again.
	must(t, third.Remove(t.Context(), entry))
	nothing(t, third, query)
	if left, err := images.run("owner").Find(t.Context(), query); err != nil || left == nil {
		t.Errorf("the other namespace has %+v, %v", left, err)
	}
}

func nothing(t *testing.T, s *Store, q Query) {
	t.Helper()
	if entry, err := s.FindOrBring(t.Context(), q); err != nil || entry != nil {
		t.Fatalf("got %+v, %v, want nothing", entry, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// grant gives the ServiceAccounts of namespace to rules in another, and waits until the API server knows of it.
func grant(t *testing.T, c client.Client, namespace, to string, rules []rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "step-cache-" + to}
	must(t, c.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	must(t, c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + to}},
	}))
	first := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0]}
	for deadline := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + to + ":default", Groups: []string{"system:serviceaccounts:" + to}, ResourceAttributes: &first,
		}}
		must(t, c.Create(t.Context(), review))
		if review.Status.Allowed {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting until the API server grants namespace %s its rights in %s: %+v", to, namespace, review.Status)
		}
	}
}
