//go:build integration

package clone_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/admission/clone"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// controller is virt-controller's user name in these tests.
const controller = "system:serviceaccount:slipway:virt-controller"

// world is a namespace golden with claim base, which jane may clone, and the ServiceAccount
// default of namespace team.
func world(t *testing.T) (client.Client, clone.Judge) {
	t.Helper()
	kinds := apiserver.Only(t, "../../hyperconverged/components/crds",
		"cdi.kubevirt.io", "kubevirt.io_virtualmachines", "template.kubevirt.io")
	c, err := client.New(apiserver.Start(t, kinds...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "golden"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "clone"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"}, Verbs: []string{"create"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "clone"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clone"},
			Subjects: []rbacv1.Subject{
				{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"},
				{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "default"},
				{Kind: rbacv1.ServiceAccountKind, Namespace: "images", Name: "importer"},
			}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "images"}},
		cron("named", "importer", "base"), cron("unnamed", "", "base"), cron("other", "importer", "another"),
		// virt-controller may create pods everywhere, which is no leave for those whose VMs it runs.
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "controller"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "controller"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: controller}}},
		source("golden", "image", cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "base"}}),
		source("golden", "kept", cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "base"}}),
		source("team", "theirs", cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: "golden", Name: "image"}}),
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for user, asked := range map[string]authorizationv1.ResourceAttributes{
		"jane":     {Namespace: "golden", Verb: "create", Group: "cdi.kubevirt.io", Resource: "datavolumes", Subresource: "source"},
		controller: {Namespace: "golden", Verb: "create", Resource: "pods"},
	} {
		gomega.NewWithT(t).Eventually(func() (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &asked}}
			err := c.Create(t.Context(), review)
			return review.Status.Allowed, err
		}, "5m", "50ms").Should(gomega.BeTrue(), "the API server knows the rights of %s", user)
	}
	return c, clone.Judge{Reader: c, Reviews: c, Controller: controller}
}

func source(namespace, name string, from cdiv1.DataSourceSource) *cdiv1.DataSource {
	return &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: cdiv1.DataSourceSpec{Source: from}}
}

// cron is a DataImportCron of namespace images that imports a claim of namespace golden.
func cron(name, account, from string) *cdiv1.DataImportCron {
	cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: name}}
	cron.Spec.ManagedDataSource, cron.Spec.Template.Spec = name, claim("golden")
	cron.Spec.Template.Spec.Source.PVC.Name = from
	if account != "" {
		cron.Spec.ServiceAccountName = &account
	}
	return cron
}

func ref(namespace, name string) cdiv1.DataVolumeSpec {
	spec := cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: name}}
	if namespace != "" {
		spec.SourceRef.Namespace = &namespace
	}
	return spec
}

func claim(namespace string) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "base"}}}
}

func snapshot(namespace string) cdiv1.DataVolumeSpec {
	return cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "base"}}}
}

func TestWhoMayClone(t *testing.T) {
	_, judge := world(t)
	for name, c := range map[string]struct {
		spec            cdiv1.DataVolumeSpec
		namespace, user string
		// mark is what the DataVolume may clone, refused a part of the refusal.
		mark, refused string
	}{
		"one's own claim":                           {spec: claim("mallory"), namespace: "mallory", user: "mallory"},
		"a claim of another namespace, with leave":  {spec: claim("golden"), namespace: "team", user: "jane", mark: "golden/base"},
		"a claim of another namespace, without":     {spec: claim("golden"), namespace: "mallory", user: "mallory", refused: "User mallory has insufficient permissions in clone source namespace golden"},
		"through a DataSource there, with leave":    {spec: ref("golden", "image"), namespace: "team", user: "jane", mark: "golden/base"},
		"through a DataSource there, without":       {spec: ref("golden", "image"), namespace: "mallory", user: "mallory", refused: "insufficient permissions"},
		"a snapshot of one's own":                   {spec: snapshot("mallory"), namespace: "mallory", user: "mallory"},
		"a snapshot, with leave":                    {spec: snapshot("golden"), namespace: "team", user: "jane", mark: "volumesnapshots/golden/base"},
		"a snapshot, without":                       {spec: snapshot("golden"), namespace: "mallory", user: "mallory", refused: "insufficient permissions in clone source namespace golden"},
		"a VM's snapshot, with leave":               {spec: snapshot("golden"), namespace: "team", user: controller, mark: "volumesnapshots/golden/base"},
		"a VM's snapshot, without":                  {spec: snapshot("golden"), namespace: "mallory", user: controller, refused: "insufficient permissions"},
		"a DataSource's snapshot, with leave":       {spec: ref("golden", "kept"), namespace: "team", user: "jane", mark: "volumesnapshots/golden/base"},
		"a DataSource's snapshot, without":          {spec: ref("golden", "kept"), namespace: "mallory", user: "mallory", refused: "insufficient permissions"},
		"through a DataSource to another":           {spec: ref("", "theirs"), namespace: "team", user: "mallory", refused: "insufficient permissions"},
		"through a DataSource that will come":       {spec: ref("", "later"), namespace: "team", user: "mallory"},
		"through one elsewhere that will come":      {spec: ref("golden", "later"), namespace: "team", user: "jane", refused: "must be there before"},
		"a VM whose account has leave":              {spec: claim("golden"), namespace: "team", user: controller, mark: "golden/base"},
		"a VM whose account has none":               {spec: claim("golden"), namespace: "mallory", user: controller, refused: "User system:serviceaccount:mallory:default has insufficient permissions"},
		"a DataVolume that clones nothing":          {spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}}, namespace: "mallory", user: "mallory"},
		"an account of the namespace, not the user": {spec: claim("golden"), namespace: "team", user: "mallory", refused: "User mallory"},
	} {
		t.Run(name, func(t *testing.T) {
			dv := &cdiv1.DataVolume{Spec: c.spec}
			dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: "golden/forged", "mine": "stays"}
			err := judge.Authorize(t.Context(), dv, c.namespace, authenticationv1.UserInfo{Username: c.user})
			switch message := clone.Refused(err); {
			case err != nil && message == "":
				t.Fatal(err)
			case c.refused == "" && message != "" || !strings.Contains(message, c.refused):
				t.Errorf("refused with %q, want %q", message, c.refused)
			}
			if got := dv.Annotations[clonesource.AnnotationAuthorized]; got != c.mark || dv.Annotations["mine"] != "stays" {
				t.Errorf("the DataVolume may clone %q, want %q", got, c.mark)
			}
		})
	}
}

func TestTemplatesOfVMsCloneWithTheRightsOfTheirNamespace(t *testing.T) {
	_, judge := world(t)
	for namespace, want := range map[string]string{"team": "", "mallory": "spec.dataVolumeTemplates[1]: Forbidden: Authorization failed, message is: User system:serviceaccount:mallory:default has insufficient permissions in clone source namespace golden"} {
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vm"}}
		vm.Spec.DataVolumeTemplates = []virtv1.DataVolumeTemplateSpec{{Spec: ref("golden", "later")}, {Spec: ref("golden", "image")}}
		errs, err := judge.Templates(t.Context(), vm, field.NewPath("spec"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("in namespace %s refused %q, want %q", namespace, got, want)
		}
	}
}

// TestADataImportCronClonesWithTheRightsOfItsAccount has virt-controller make DataVolumes of DataImportCrons, and of others that say they are.
func TestADataImportCronClonesWithTheRightsOfItsAccount(t *testing.T) {
	_, judge := world(t)
	const refused = "User system:serviceaccount:images:default has insufficient permissions in clone source namespace golden"
	for name, c := range map[string]struct {
		of, user string
		spec     cdiv1.DataVolumeSpec
		change   func(*cdiv1.DataVolume)
		refused  string
	}{
		"of one that names an account with leave": {of: "named", spec: claim("golden")},
		"of one that names none":                  {of: "unnamed", spec: claim("golden"), refused: refused},
		"of one that imports another claim":       {of: "other", spec: claim("golden"), refused: refused},
		"of one that is not there":                {of: "gone", spec: claim("golden"), refused: refused},
		"a snapshot of the claim's name":          {of: "named", spec: snapshot("golden"), refused: refused},
		"a user's, with the label":                {of: "named", spec: claim("golden"), user: "mallory", refused: "User mallory"},
		"a VM's, with the label": {of: "named", spec: claim("golden"), refused: refused, change: func(dv *cdiv1.DataVolume) {
			dv.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "vm", Controller: new(true)}}
		}},
		"a VM's that keeps its disks, with the label": {of: "named", spec: claim("golden"), refused: refused, change: func(dv *cdiv1.DataVolume) {
			dv.Labels[virtv1.CreatedByLabel] = "uid"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dv := &cdiv1.DataVolume{Spec: c.spec}
			dv.Labels = map[string]string{"cdi.kubevirt.io/dataImportCron": c.of}
			if c.change != nil {
				c.change(dv)
			}
			err := judge.Authorize(t.Context(), dv, "images", authenticationv1.UserInfo{Username: cmp.Or(c.user, controller)})
			if message := clone.Refused(err); err != nil && message == "" {
				t.Fatal(err)
			} else if (c.refused == "") != (message == "") || !strings.Contains(message, c.refused) {
				t.Errorf("refused %q, want %q", message, c.refused)
			}
			if got := dv.Annotations[clonesource.AnnotationAuthorized]; (got == "golden/base") != (c.refused == "") {
				t.Errorf("it may clone %q", got)
			}
		})
	}
	for of, want := range map[string]string{"importer": "", "": refused} {
		if got, err := judge.Cron(t.Context(), cron("new", of, "base")); err != nil || (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("of a new one with account %q it is said %q, %v", of, got, err)
		}
	}
	own := cron("new", "", "base")
	own.Spec.Template.Spec.Source.PVC.Namespace = ""
	if got, err := judge.Cron(t.Context(), own); err != nil || got != "" {
		t.Errorf("of a claim of its own it is said %q, %v", got, err)
	}
}
