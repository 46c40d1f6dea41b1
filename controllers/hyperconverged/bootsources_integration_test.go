//go:build integration

package hyperconverged

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-vm/slipway/catalog"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestBootSources walks through the life of boot sources. Nobody admits here what virt-api would.
func TestBootSources(t *testing.T) {
	c, config, options := startAPIServer(t, func(server *envtest.Environment) {
		server.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
	})
	options.BootSources = catalog.BootSources()
	stop := startRun(t, c, config, options)
	if err := c.Create(t.Context(), theObject(options)); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []struct {
		name string
		test func(*testing.T, client.WithWatch, Options)
	}{
		{"nothing is asked of virt-api before it is there", sourcesWait},
		{"then all are made, where everyone may see them", sourcesAreMade},
		{"one that is changed is made anew, one that is left out goes", sourcesAreChanged},
		{"its images stay, also when they would go with it, and it is not made anew for nothing", imagesStay},
		{"what is somebody else's stays", sourcesOfOthersStay},
		{"a namespace for one is waited for", sourcesWaitForNamespaces},
		{"copies that users make of them are theirs", copiesStay},
		{"one that is refused is told, and the others go on", sourcesAreRefused},
		{"what nobody could admit keeps no component from being put back", badSourcesHinderNothing},
		{"when they are switched off they go, and the rights to what is imported stay", sourcesAreSwitchedOff},
	} {
		if !t.Run(stage.name, func(t *testing.T) { stage.test(t, c, options) }) {
			t.Fatal("the stages build on each other")
		}
	}
	stop()
	t.Run("a restart makes none anew", func(t *testing.T) {
		before := cronNamed(t, c, "golden", "mine")
		startRun(t, c, config, options)
		late := templateOf("late", "docker://registry.example.com/late:1", nil)
		late.Namespace = "awaited"
		setSources(t, c, options, func(w *hcov1.WorkloadSources) { w.DataImportCronTemplates = append(w.DataImportCronTemplates, late) })
		waitHCO(t, c, options, "Progressing", metav1.ConditionTrue, "awaited")
		if after := cronNamed(t, c, "golden", "mine"); after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("it was written: %+v became %+v", before, after)
		}
	})
}

func sourcesWait(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	waitHCO(t, c, options, "Available", metav1.ConditionFalse, "rollout not started")
	crons := &cdiv1.DataImportCronList{}
	if err := c.List(t.Context(), crons); err != nil || len(crons.Items) > 0 {
		t.Errorf("got %+v, %v", crons.Items, err)
	}
	get(t, c, client.ObjectKey{Name: hcov1.CommonBootImageNamespace}, &corev1.Namespace{})
	rollOut(t, c, options)
}

func sourcesAreMade(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	hco := waitSources(t, c, options, "all are told", func(sources []hcov1.DataImportCronTemplateStatus) bool { return len(sources) == len(common) })
	for _, name := range common {
		cron := waitCron(t, c, hcov1.CommonBootImageNamespace, name, func(*cdiv1.DataImportCron) bool { return true })
		if cron.Spec.Schedule != hco.Status.DataImportSchedule {
			t.Errorf("%s is looked for at %q, not at %q", name, cron.Spec.Schedule, hco.Status.DataImportSchedule)
		}
	}
	waitHCO(t, c, options, "Available", metav1.ConditionTrue, "")
	binding := &rbacv1.RoleBinding{}
	get(t, c, client.ObjectKey{Namespace: hcov1.CommonBootImageNamespace, Name: "os-images.kubevirt.io:view"}, binding)
	if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.GroupKind && s.Name == "system:authenticated" }) {
		t.Errorf("everyone is not among %+v", binding.Subjects)
	}
}

func sourcesAreChanged(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	before := cronNamed(t, c, hcov1.CommonBootImageNamespace, "fedora-image-cron")
	const mirror = "docker://mirror.example.com/fedora:latest"
	setSources(t, c, options, func(w *hcov1.WorkloadSources) {
		w.DataImportCronTemplates = []hcov1.DataImportCronTemplate{templateOf("fedora-image-cron", mirror, nil), templateOf("debian13-image-cron", "", left)}
	})
	after := waitCron(t, c, hcov1.CommonBootImageNamespace, "fedora-image-cron", func(cron *cdiv1.DataImportCron) bool {
		return *cron.Spec.Template.Spec.Source.Registry.URL == mirror
	})
	if after.UID == before.UID || after.Spec.Schedule != before.Spec.Schedule {
		t.Errorf("%+v became %+v", before, after)
	}
	waitSources(t, c, options, "one less is told, and one that is modified", func(sources []hcov1.DataImportCronTemplateStatus) bool {
		return len(sources) == len(common)-1 && slices.ContainsFunc(sources, func(s hcov1.DataImportCronTemplateStatus) bool {
			return s.Name == "fedora-image-cron" && s.Status.CommonTemplate && s.Status.Modified
		})
	})
	until(t, "the one that is left out is gone", func() bool { return !cronExists(t, c, hcov1.CommonBootImageNamespace, "debian13-image-cron") })
}

func imagesStay(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	before := cronNamed(t, c, hcov1.CommonBootImageNamespace, "fedora-image-cron")
	patch := `{"metadata":{"annotations":{"slipway-vm.github.io/content":null}}}`
	if err := c.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	again := waitCron(t, c, before.Namespace, before.Name, func(cron *cdiv1.DataImportCron) bool { return cron.Annotations[annotationContent] != "" })
	if again.UID != before.UID {
		t.Error("one that lacks the annotation is made anew")
	}
	set := func(change func(*cdiv1.DataImportCronSpec)) {
		setSources(t, c, options, func(w *hcov1.WorkloadSources) {
			for i := range w.DataImportCronTemplates {
				if template := &w.DataImportCronTemplates[i]; template.Name == before.Name {
					change(template.Spec)
				}
			}
		})
	}
	set(func(spec *cdiv1.DataImportCronSpec) { spec.RetentionPolicy = new(cdiv1.DataImportCronRetainNone) })
	waitCron(t, c, before.Namespace, before.Name, func(cron *cdiv1.DataImportCron) bool { return cron.Spec.RetentionPolicy != nil })
	for _, change := range []func(*cdiv1.DataImportCronSpec){
		func(spec *cdiv1.DataImportCronSpec) { spec.ImportsToKeep = new(int32(5)) },
		func(spec *cdiv1.DataImportCronSpec) { spec.RetentionPolicy = nil },
	} {
		former := cronNamed(t, c, before.Namespace, before.Name)
		set(change)
		ending := waitCron(t, c, before.Namespace, before.Name, func(cron *cdiv1.DataImportCron) bool { return cron.UID != former.UID || cron.DeletionTimestamp != nil })
		if ending.UID != former.UID || !slices.Contains(ending.Finalizers, metav1.FinalizerOrphanDependents) {
			t.Fatalf("what it owned goes: %+v became %+v", former, ending)
		}
		patch = `{"metadata":{"finalizers":null}}` // as the garbage collector does, when nothing has it as an owner
		if err := c.Patch(t.Context(), ending, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		waitCron(t, c, before.Namespace, before.Name, func(cron *cdiv1.DataImportCron) bool { return cron.UID != former.UID })
	}
}

func sourcesOfOthersStay(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	theirs := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: hcov1.CommonBootImageNamespace, Name: "debian13-image-cron"}}
	theirs.Spec = *templateOf("theirs", "docker://registry.example.com/theirs:1", nil).Spec
	if err := c.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	setSources(t, c, options, func(w *hcov1.WorkloadSources) { w.DataImportCronTemplates = nil })
	hco := waitSources(t, c, options, "the name that is taken is told", func(sources []hcov1.DataImportCronTemplateStatus) bool {
		return slices.ContainsFunc(sources, func(s hcov1.DataImportCronTemplateStatus) bool {
			told := meta.FindStatusCondition(s.Status.Conditions, hcov1.ConditionDeployed)
			return s.Name == "debian13-image-cron" && told != nil && told.Reason == ReasonTaken
		})
	})
	if meta.IsStatusConditionTrue(hco.Status.Conditions, "Degraded") {
		t.Error("a name that is taken is no failure")
	}
	if now := cronNamed(t, c, theirs.Namespace, theirs.Name); now.UID != theirs.UID || now.Spec.ManagedDataSource != "theirs" {
		t.Errorf("it became %+v", now)
	}
	if err := c.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
}

func sourcesWaitForNamespaces(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	mine := templateOf("mine", "docker://registry.example.com/mine:1", nil)
	mine.Namespace = "golden"
	setSources(t, c, options, func(w *hcov1.WorkloadSources) {
		w.CommonBootImageNamespace = new("golden")
		w.DataImportCronTemplates = []hcov1.DataImportCronTemplate{mine}
	})
	hco := waitHCO(t, c, options, "Progressing", metav1.ConditionTrue, "namespace golden")
	if !meta.IsStatusConditionTrue(hco.Status.Conditions, "Available") {
		t.Error("a namespace that is missing hinders what is there")
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "golden"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"mine"}, common...) {
		waitCron(t, c, "golden", name, func(*cdiv1.DataImportCron) bool { return true })
	}
	until(t, "those of before are gone", func() bool { return !cronExists(t, c, hcov1.CommonBootImageNamespace, "fedora-image-cron") })
	until(t, "the rights are where the images are", func() bool {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "golden", Name: "os-images.kubevirt.io:view"}, &rbacv1.Role{})
		return client.IgnoreNotFound(err) == nil && !apierrors.IsNotFound(err)
	})
	waitHCO(t, c, options, "Progressing", metav1.ConditionFalse, "")
}

func copiesStay(t *testing.T, c client.WithWatch, _ Options) {
	t.Helper()
	copied := cronNamed(t, c, "golden", "fedora-image-cron")
	copied.ObjectMeta = metav1.ObjectMeta{Namespace: "golden", Name: "my-fedora", Labels: copied.Labels, Annotations: copied.Annotations}
	copied.Spec.ManagedDataSource = "my-fedora"
	if err := c.Create(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
}

func sourcesAreRefused(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "none"}}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	none := corev1.ResourceList{"count/dataimportcrons.cdi.kubevirt.io": resource.MustParse("0")}
	quota.Spec.Hard, quota.Status = none, corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if err := c.Status().Update(t.Context(), quota); err != nil { // as the quota's controller does
		t.Fatal(err)
	}
	refused := templateOf("refused", "docker://registry.example.com/refused:1", nil)
	refused.Namespace = "full"
	until(t, "the quota counts", func() bool {
		cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "probe"}, Spec: *refused.Spec}
		return apierrors.IsForbidden(c.Create(t.Context(), cron, client.DryRunAll))
	})
	added := templateOf("added", "docker://registry.example.com/added:1", nil)
	added.Namespace = "golden"
	setSources(t, c, options, func(w *hcov1.WorkloadSources) {
		w.DataImportCronTemplates = append(w.DataImportCronTemplates, refused, added)
	})
	waitSources(t, c, options, "what is refused is told", func(sources []hcov1.DataImportCronTemplateStatus) bool {
		return slices.ContainsFunc(sources, func(s hcov1.DataImportCronTemplateStatus) bool {
			told := meta.FindStatusCondition(s.Status.Conditions, hcov1.ConditionDeployed)
			return s.Name == "refused" && told != nil && told.Reason == ReasonFailed && strings.Contains(told.Message, "exceeded quota")
		})
	})
	waitHCO(t, c, options, conditionUnsourced, metav1.ConditionTrue, "exceeded quota")
	waitCron(t, c, "golden", "added", func(*cdiv1.DataImportCron) bool { return true })
	sourceIsReplaced(t, c, options)
	setSources(t, c, options, func(w *hcov1.WorkloadSources) {
		w.DataImportCronTemplates = w.DataImportCronTemplates[:len(w.DataImportCronTemplates)-1]
	})
	until(t, "what is no longer asked for is gone, though another is refused", func() bool { return !cronExists(t, c, "golden", "added") })
	hindersNothing(t, c, options)
	setSources(t, c, options, func(w *hcov1.WorkloadSources) {
		w.DataImportCronTemplates = w.DataImportCronTemplates[:len(w.DataImportCronTemplates)-1]
	})
	waitSourced(t, c, options)
}

// sourceIsReplaced has another boot source take the DataSource of the last one, whose it is until that is gone.
func sourceIsReplaced(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	seen := &cdiv1.DataImportCronList{}
	if err := c.List(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	events := apiserver.Watch(t, c, seen, client.InNamespace("golden"))
	rename := func(name string) {
		setSources(t, c, options, func(w *hcov1.WorkloadSources) {
			w.DataImportCronTemplates[len(w.DataImportCronTemplates)-1].Name = name
		})
	}
	rename("instead")
	var order []string
	for end := time.After(patience); len(order) < 2; {
		select {
		case event := <-events.ResultChan():
			if object, is := event.Object.(client.Object); is && (event.Type == watch.Added || event.Type == watch.Deleted) {
				order = append(order, string(event.Type)+" "+object.GetName())
			}
		case <-end:
			t.Fatalf("nothing more than %v", order)
		}
	}
	if want := []string{"DELETED added", "ADDED instead"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	rename("added")
	waitCron(t, c, "golden", "added", func(*cdiv1.DataImportCron) bool { return true })
}

// hindersNothing sees that boot sources that are not made keep the installation from nothing.
func hindersNothing(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	hco := waitHCO(t, c, options, conditionUnsourced, metav1.ConditionTrue, "")
	for kind, want := range map[string]bool{"ReconcileComplete": true, "Available": true, "Degraded": false, "Upgradeable": true} {
		if got := meta.IsStatusConditionTrue(hco.Status.Conditions, kind); got != want {
			t.Errorf("%s is %t: %+v", kind, got, hco.Status.Conditions)
		}
	}
}

// waitSourced waits until all boot sources are made.
func waitSourced(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	wait(t, c, &hcov1.HyperConvergedList{}, client.ObjectKeyFromObject(theObject(options)), "all boot sources are made", func(hco *hcov1.HyperConverged) bool {
		return hco.Status.ObservedGeneration == hco.Generation && meta.FindStatusCondition(hco.Status.Conditions, conditionUnsourced) == nil
	})
}

func badSourcesHinderNothing(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	bad := templateOf("bad", "docker://registry.example.com/bad:1", nil)
	bad.Spec.Schedule = "often"
	setSources(t, c, options, func(w *hcov1.WorkloadSources) { w.DataImportCronTemplates = append(w.DataImportCronTemplates, bad) })
	waitHCO(t, c, options, conditionUnsourced, metav1.ConditionTrue, "spec.schedule")
	hindersNothing(t, c, options)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "os-images.kubevirt.io:edit"}}
	if err := c.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	until(t, "the role is back", func() bool { return c.Get(t.Context(), client.ObjectKeyFromObject(role), role) == nil })
	if !cronExists(t, c, "golden", "mine") {
		t.Error("what was deployed before is gone")
	}
	setSources(t, c, options, func(w *hcov1.WorkloadSources) {
		w.DataImportCronTemplates = w.DataImportCronTemplates[:len(w.DataImportCronTemplates)-1]
	})
	waitSourced(t, c, options)
}

func sourcesAreSwitchedOff(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	setSources(t, c, options, func(w *hcov1.WorkloadSources) { w.EnableCommonBootImageImport = new(false) })
	waitSources(t, c, options, "only the user's own is told", func(sources []hcov1.DataImportCronTemplateStatus) bool {
		return len(sources) == 1 && !sources[0].Status.CommonTemplate
	})
	for _, name := range common {
		until(t, name+" is gone", func() bool { return !cronExists(t, c, "golden", name) })
	}
	for _, name := range []string{"mine", "my-fedora"} {
		if !cronExists(t, c, "golden", name) {
			t.Errorf("%s is gone, too", name)
		}
	}
	get(t, c, client.ObjectKey{Namespace: "golden", Name: "os-images.kubevirt.io:view"}, &rbacv1.Role{})
	get(t, c, client.ObjectKey{Name: hcov1.CommonBootImageNamespace}, &corev1.Namespace{})
}

// setSources changes what the HyperConverged object says of boot sources.
func setSources(t *testing.T, c client.Client, options Options, change func(*hcov1.WorkloadSources)) {
	t.Helper()
	hco := &hcov1.HyperConverged{}
	get(t, c, client.ObjectKeyFromObject(theObject(options)), hco)
	before := hco.DeepCopy()
	change(&hco.Spec.WorkloadSources)
	if err := c.Patch(t.Context(), hco, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func waitSources(t *testing.T, c client.WithWatch, options Options, what string, check func([]hcov1.DataImportCronTemplateStatus) bool) *hcov1.HyperConverged {
	t.Helper()
	var last *hcov1.HyperConverged
	wait(t, c, &hcov1.HyperConvergedList{}, client.ObjectKeyFromObject(theObject(options)), what, func(hco *hcov1.HyperConverged) bool {
		last = hco
		return hco.Status.ObservedGeneration == hco.Generation && check(hco.Status.DataImportCronTemplates)
	})
	return last
}

func waitCron(t *testing.T, c client.WithWatch, namespace, name string, check func(*cdiv1.DataImportCron) bool) *cdiv1.DataImportCron {
	t.Helper()
	var last *cdiv1.DataImportCron
	key := types.NamespacedName{Namespace: namespace, Name: name}
	wait(t, c, &cdiv1.DataImportCronList{}, key, "DataImportCron "+key.String(), func(cron *cdiv1.DataImportCron) bool {
		last = cron
		return check(cron)
	})
	return last
}

func cronNamed(t *testing.T, c client.Client, namespace, name string) *cdiv1.DataImportCron {
	t.Helper()
	cron := &cdiv1.DataImportCron{}
	get(t, c, client.ObjectKey{Namespace: namespace, Name: name}, cron)
	return cron
}

func cronExists(t *testing.T, c client.Client, namespace, name string) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &cdiv1.DataImportCron{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return !apierrors.IsNotFound(err)
}
