//go:build integration

package clone_test

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/admission/clone"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/clonesource"
)

// grant lets a user do something in a namespace, and waits until the API server knows that.
func grant(t *testing.T, c client.Client, user, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range rules {
		resource, sub, _ := strings.Cut(rule.Resources[0], "/")
		asked := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub}
		if len(rule.ResourceNames) > 0 {
			asked.Name = rule.ResourceNames[0]
		}
		gomega.NewWithT(t).Eventually(func() (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &asked}}
			err := c.Create(t.Context(), review)
			return review.Status.Allowed, err
		}, "5m", "50ms").Should(gomega.BeTrue(), "the API server knows the rights of %s", user)
	}
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

// Whoever asks for a template must be allowed what virt-controller does for it.
func TestWhoMayHaveTemplates(t *testing.T) {
	c, judge := world(t)
	disks, templates := rule("create", "cdi.kubevirt.io", "datavolumes"), rule("create", "template.kubevirt.io", "virtualmachinetemplates")
	reads, clones := rule("get", "kubevirt.io", "virtualmachines"), rule("create", "cdi.kubevirt.io", "datavolumes/source")
	const source = "virtualmachinetemplaterequests/source"
	for _, user := range []string{"granted", "of-one", "reader", "cloner", "both", "outsider"} {
		grant(t, c, user, "team", disks, templates)
	}
	grant(t, c, "at-home", "golden", disks, templates, reads)
	grant(t, c, "blind", "golden", disks, templates)
	grant(t, c, "granted", "golden", rule("create", "template.kubevirt.io", source))
	grant(t, c, "of-one", "golden", rule("create", "template.kubevirt.io", source, "web"))
	grant(t, c, "reader", "golden", reads)
	grant(t, c, "cloner", "golden", clones)
	grant(t, c, "both", "golden", reads, clones)
	grant(t, c, "no-disks", "golden", rule("create", "template.kubevirt.io", source))
	grant(t, c, "no-disks", "team", templates)
	grant(t, c, "no-templates", "golden", rule("create", "template.kubevirt.io", source))
	grant(t, c, "no-templates", "team", disks)
	const refused = "User is not allowed to use VirtualMachine golden/web as a source for VirtualMachineTemplateRequests"
	for _, ask := range []struct{ user, namespace, vm, want string }{
		{"granted", "team", "web", ""},
		{"of-one", "team", "web", ""},
		{"of-one", "team", "other", "User is not allowed to use VirtualMachine golden/other as a source"},
		{"reader", "team", "web", refused},
		{"cloner", "team", "web", refused},
		{"both", "team", "web", ""},
		{"outsider", "team", "web", refused},
		{"at-home", "golden", "web", ""},
		{"blind", "golden", "web", refused},
		{"no-disks", "team", "web", "User is not allowed to create DataVolumes in namespace team"},
		{"no-templates", "team", "web", "User is not allowed to create VirtualMachineTemplates in namespace team"},
	} {
		request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ask.namespace, Name: "t"}}
		request.Spec.VirtualMachineRef = vmtemplatev1beta1.VirtualMachineReference{Namespace: "golden", Name: ask.vm}
		got, err := judge.Template(t.Context(), request, authenticationv1.UserInfo{Username: ask.user})
		if err != nil || (got == "") != (ask.want == "") || !strings.HasPrefix(got, ask.want) {
			t.Errorf("%s in %s, of %s: it is said %q, %v; want %q", ask.user, ask.namespace, ask.vm, got, err, ask.want)
		}
	}
}

// The DataVolumes that virt-controller makes for a request clone snapshots of its VM's namespace, and nothing else.
func TestWhatARequestClones(t *testing.T) {
	c, judge := world(t)
	request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "t"}}
	request.Spec.VirtualMachineRef = vmtemplatev1beta1.VirtualMachineReference{Namespace: "golden", Name: "web"}
	if err := c.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	owner := *metav1.NewControllerRef(request, vmtemplatev1beta1.GroupVersion.WithKind("VirtualMachineTemplateRequest"))
	former := owner
	former.UID = "former"
	const refused = "User system:serviceaccount:images:default has insufficient permissions in clone source namespace"
	for name, ask := range map[string]struct {
		spec    cdiv1.DataVolumeSpec
		owner   metav1.OwnerReference
		user    string
		refused string
	}{
		"a snapshot of its VM's namespace":  {spec: snapshot("golden"), owner: owner, user: controller},
		"a claim of that":                   {spec: claim("golden"), owner: owner, user: controller, refused: refused},
		"a snapshot of another":             {spec: snapshot("team"), owner: owner, user: controller, refused: refused},
		"for a request that is gone":        {spec: snapshot("golden"), owner: former, user: controller, refused: refused},
		"a user's, that says it is for one": {spec: snapshot("golden"), owner: owner, user: "mallory", refused: "User mallory has insufficient permissions"},
	} {
		t.Run(name, func(t *testing.T) {
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{ask.owner}}, Spec: ask.spec}
			err := judge.Authorize(t.Context(), dv, "images", authenticationv1.UserInfo{Username: ask.user})
			if message := clone.Refused(err); err != nil && message == "" {
				t.Fatal(err)
			} else if (ask.refused == "") != (message == "") || !strings.Contains(message, ask.refused) {
				t.Errorf("refused %q, want %q", message, ask.refused)
			}
			if got := dv.Annotations[clonesource.AnnotationAuthorized]; (got == "volumesnapshots/golden/base") != (ask.refused == "") {
				t.Errorf("it may clone %q", got)
			}
		})
	}
}
