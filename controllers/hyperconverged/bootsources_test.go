package hyperconverged

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/catalog"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/importschedule"
)

// shipped are the common boot images.
func shipped(t *testing.T) []hcov1.DataImportCronTemplate {
	t.Helper()
	all, err := shippedSources(catalog.BootSources())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// templateOf is a user's boot source; one of an image, or without a spec.
func templateOf(name, url string, annotations map[string]string) hcov1.DataImportCronTemplate {
	template := hcov1.DataImportCronTemplate{TemplateMetadata: hcov1.TemplateMetadata{Name: name, Annotations: annotations}}
	if url == "" {
		return template
	}
	storage := &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
	template.Spec = &cdiv1.DataImportCronSpec{
		ManagedDataSource: strings.TrimSuffix(name, "-image-cron"),
		Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: &url}}, Storage: storage,
		}},
	}
	return template
}

var (
	left   = map[string]string{hcov1.AnnotationTemplateEnable: "false"}
	common = []string{"centos-stream10-image-cron", "centos-stream9-image-cron", "debian13-image-cron", "fedora-image-cron", "ubuntu2404-image-cron"}
)

func TestWhichBootSourcesAreDeployed(t *testing.T) {
	const mirror = "docker://mirror.example.com/fedora:latest"
	cases := map[string]struct {
		off       bool   // no common boot images
		namespace string // of these
		templates []hcov1.DataImportCronTemplate
		want      []string // namespace/name, with " common" and " modified" behind
	}{
		"nothing is said": {want: decorated(common, hcov1.CommonBootImageNamespace, " common")},
		"none":            {off: true},
		"elsewhere":       {namespace: "golden", want: decorated(common, "golden", " common")},
		"one is left out": {
			templates: []hcov1.DataImportCronTemplate{templateOf("fedora-image-cron", "", left)},
			want:      decorated(slices.DeleteFunc(slices.Clone(common), func(n string) bool { return n == "fedora-image-cron" }), hcov1.CommonBootImageNamespace, " common"),
		},
		"one is changed, and goes where it says": {
			namespace: "golden",
			templates: []hcov1.DataImportCronTemplate{templateOf("fedora-image-cron", mirror, nil)},
			want: slices.Concat(decorated(common[:3], "golden", " common"), []string{hcov1.CommonBootImageNamespace + "/fedora-image-cron common modified"},
				decorated(common[4:], "golden", " common")),
		},
		"a user's own": {
			off:       true,
			templates: []hcov1.DataImportCronTemplate{templateOf("mine", mirror, nil), templateOf("less", mirror, left), templateOf("also", mirror, map[string]string{hcov1.AnnotationTemplateEnable: "True"})},
			want:      []string{hcov1.CommonBootImageNamespace + "/also", hcov1.CommonBootImageNamespace + "/mine"},
		},
		"one of the common names is a user's own when there are no common ones": {
			off:       true,
			templates: []hcov1.DataImportCronTemplate{templateOf("fedora-image-cron", mirror, nil)},
			want:      []string{hcov1.CommonBootImageNamespace + "/fedora-image-cron"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hco := theOne()
			hco.Spec.WorkloadSources.DataImportCronTemplates = c.templates
			if c.off {
				hco.Spec.WorkloadSources.EnableCommonBootImageImport = new(false)
			}
			if c.namespace != "" {
				hco.Spec.WorkloadSources.CommonBootImageNamespace = &c.namespace
			}
			if err := validate(hco, testOptions()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, source := range bootSources(hco, shipped(t)) {
				words := homeOf(&source) + "/" + source.Name
				if source.Status.CommonTemplate {
					words += " common"
				}
				if source.Status.Modified {
					words += " modified"
				}
				got = append(got, words)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func decorated(names []string, namespace, behind string) []string {
	var all []string
	for _, name := range names {
		all = append(all, namespace+"/"+name+behind)
	}
	return all
}

func TestWhereEveryoneMaySeeBootImages(t *testing.T) {
	const elsewhere = "golden"
	own := templateOf("mine", "docker://mirror.example.com/mine:latest", nil)
	away := templateOf("mine", "docker://mirror.example.com/mine:latest", nil)
	away.Namespace = "images"
	for name, c := range map[string]struct {
		off, made bool
		common    string
		templates []hcov1.DataImportCronTemplate
		want      []string
	}{
		"nothing is said":                       {want: []string{hcov1.CommonBootImageNamespace}},
		"none":                                  {off: true},
		"none any more":                         {off: true, made: true, want: []string{hcov1.CommonBootImageNamespace}},
		"none but a user's own":                 {off: true, templates: []hcov1.DataImportCronTemplate{own}, want: []string{hcov1.CommonBootImageNamespace}},
		"none but a user's own somewhere":       {off: true, templates: []hcov1.DataImportCronTemplate{away}},
		"elsewhere":                             {common: elsewhere, made: true, want: []string{elsewhere}},
		"elsewhere, and a user's own":           {common: elsewhere, templates: []hcov1.DataImportCronTemplate{own}, want: []string{elsewhere, hcov1.CommonBootImageNamespace}},
		"none, where the images are, elsewhere": {off: true, common: elsewhere, want: []string{elsewhere}},
	} {
		hco := theOne()
		hco.Spec.WorkloadSources.DataImportCronTemplates = c.templates
		hco.Spec.WorkloadSources.EnableCommonBootImageImport = new(!c.off)
		hco.Spec.WorkloadSources.CommonBootImageNamespace = &c.common
		if got := goldenNamespaces(hco, bootSources(hco, shipped(t)), c.made); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestAChangedBootImageKeepsItsSchedule(t *testing.T) {
	hco := theOne()
	hco.UID = "a"
	changed := templateOf("fedora-image-cron", "docker://mirror.example.com/fedora:latest", map[string]string{"a": "b"})
	changed.Labels = map[string]string{"instancetype.kubevirt.io/default-instancetype": "u1.large"}
	hco.Spec.WorkloadSources.DataImportCronTemplates = []hcov1.DataImportCronTemplate{changed}
	for _, source := range bootSources(hco, shipped(t)) {
		if source.Spec.Schedule != importSchedule("a") {
			t.Errorf("%s is looked for at %q", source.Name, source.Spec.Schedule)
		}
		if source.Name != "fedora-image-cron" {
			continue
		}
		if url := *source.Spec.Template.Spec.Source.Registry.URL; !strings.Contains(url, "mirror") {
			t.Errorf("it is imported from %s", url)
		}
		if source.Labels["instancetype.kubevirt.io/default-instancetype"] != "u1.large" || source.Labels["instancetype.kubevirt.io/default-preference"] != "fedora" || source.Annotations["a"] != "b" {
			t.Errorf("labels %v, annotations %v", source.Labels, source.Annotations)
		}
	}
}

func TestABootImageOfAUsersIsLookedForToo(t *testing.T) {
	hco := theOne()
	hco.UID = "a"
	daily := templateOf("daily", "docker://mirror.example.com/daily:latest", nil)
	daily.Spec.Schedule = "@daily"
	hco.Spec.WorkloadSources.EnableCommonBootImageImport = new(false)
	hco.Spec.WorkloadSources.DataImportCronTemplates = []hcov1.DataImportCronTemplate{
		daily, templateOf("fedora-image-cron", "docker://mirror.example.com/fedora:latest", nil), templateOf("mine", "docker://mirror.example.com/mine:latest", nil),
	}
	for _, source := range bootSources(hco, shipped(t)) {
		if want := map[string]string{"daily": "@daily"}[source.Name]; source.Spec.Schedule != cmp.Or(want, importSchedule("a")) {
			t.Errorf("%s is looked for at %q", source.Name, source.Spec.Schedule)
		}
	}
}

// Each installation asks at a time of its own, which every operator of it comes to.
func TestSchedulesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, uid := range []types.UID{"a", "b", "c", "d", ""} {
		schedule := importSchedule(uid)
		parsed, err := importschedule.Parse(schedule)
		if err != nil || schedule != importSchedule(uid) {
			t.Fatalf("%s: %v", schedule, err)
		}
		first := parsed.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		if gap := parsed.Next(first).Sub(first); gap != 12*time.Hour {
			t.Errorf("%s: %s between two", schedule, gap)
		}
		seen[schedule] = true
	}
	if len(seen) < 4 {
		t.Errorf("five installations ask at %v", seen)
	}
}

func TestBadBootSourcesAreRefusedWithThePath(t *testing.T) {
	const at = "spec.workloadSources.dataImportCronTemplates[0]."
	good := func() hcov1.DataImportCronTemplate {
		return templateOf("mine", "docker://registry.example.com/a:1", nil)
	}
	for want, change := range map[string]func(*hcov1.WorkloadSources, *hcov1.DataImportCronTemplate){
		"spec.workloadSources.commonBootImageNamespace": func(w *hcov1.WorkloadSources, _ *hcov1.DataImportCronTemplate) {
			w.CommonBootImageNamespace = new("A b")
		},
		`commonBootImageNamespace: Invalid value: "kube-system": everyone`: func(w *hcov1.WorkloadSources, _ *hcov1.DataImportCronTemplate) {
			w.CommonBootImageNamespace = new("kube-system")
		},
		`commonBootImageNamespace: Invalid value: "kubevirt-hyperconverged": everyone`: func(w *hcov1.WorkloadSources, _ *hcov1.DataImportCronTemplate) {
			w.CommonBootImageNamespace = new("kubevirt-hyperconverged")
		},
		at + "metadata.name":      func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) { c.Name = "" },
		at + "metadata.namespace": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) { c.Namespace = "a.b" },
		at + "metadata.labels": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) {
			c.Labels = map[string]string{"a": "b c"}
		},
		at + "metadata.annotations[dataimportcrontemplate.kubevirt.io/enable]": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) {
			c.Annotations = map[string]string{hcov1.AnnotationTemplateEnable: "no"}
		},
		at + "metadata.annotations[cdi.kubevirt.io/storage.import.sourceDesiredDigest]: Forbidden: Slipway writes": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) {
			c.Annotations = map[string]string{"cdi.kubevirt.io/storage.import.sourceDesiredDigest": "sha256:" + strings.Repeat("ab", 32)}
		},
		at + "metadata.annotations[slipway-vm.github.io/content]: Forbidden: Slipway writes": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) {
			c.Annotations = map[string]string{"slipway-vm.github.io/content": "a"}
		},
		at + "spec: Required value: write the whole spec": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) { c.Spec = nil },
		at + "spec.schedule":                              func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) { c.Spec.Schedule = "often" },
		at + "spec.managedDataSource":                     func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) { c.Spec.ManagedDataSource = "" },
		at + "spec.serviceAccountName: Invalid value": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) {
			c.Spec.ServiceAccountName = new("x:y")
		},
		at + "spec.template.spec.source.registry.url": func(_ *hcov1.WorkloadSources, c *hcov1.DataImportCronTemplate) {
			c.Spec.Template.Spec.Source.Registry.URL = new("oci-archive://x")
		},
		"spec.workloadSources.dataImportCronTemplates[1].metadata.name: Duplicate value: \"mine": func(w *hcov1.WorkloadSources, _ *hcov1.DataImportCronTemplate) {
			w.DataImportCronTemplates = append(w.DataImportCronTemplates, good())
		},
	} {
		hco := theOne()
		sources := &hco.Spec.WorkloadSources
		sources.DataImportCronTemplates = []hcov1.DataImportCronTemplate{good()}
		if err := validate(hco, testOptions()); err != nil {
			t.Fatal(err)
		}
		change(sources, &sources.DataImportCronTemplates[0])
		if err := validate(hco, testOptions()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAnotherSpecIsToldFromOtherLabels(t *testing.T) {
	plan := func(change func(*hcov1.DataImportCronTemplateStatus), version string) *unstructured.Unstructured {
		source := hcov1.DataImportCronTemplateStatus{DataImportCronTemplate: templateOf("mine", "docker://registry.example.com/a:1", map[string]string{"a": "b"})}
		change(&source)
		cron, err := planCron(&source, version)
		if err != nil {
			t.Fatal(err)
		}
		return cron
	}
	same := func(*hcov1.DataImportCronTemplateStatus) {}
	live := plan(same, "v1")
	for name, c := range map[string]struct {
		change         func(*hcov1.DataImportCronTemplateStatus)
		version        string
		asIs, sameSpec bool
	}{
		"the same":              {same, "v1", true, true},
		"another version":       {same, "v2", false, true},
		"another annotation":    {func(s *hcov1.DataImportCronTemplateStatus) { s.Annotations["a"] = "c" }, "v1", false, true},
		"one annotation less":   {func(s *hcov1.DataImportCronTemplateStatus) { delete(s.Annotations, "a") }, "v1", false, true},
		"one label more":        {func(s *hcov1.DataImportCronTemplateStatus) { s.Labels = map[string]string{"c": "d"} }, "v1", false, true},
		"kept longer":           {func(s *hcov1.DataImportCronTemplateStatus) { s.Spec.ImportsToKeep = new(int32(2)) }, "v1", false, false},
		"looked for on Mondays": {func(s *hcov1.DataImportCronTemplateStatus) { s.Spec.Schedule = "0 0 * * 1" }, "v1", false, false},
	} {
		wanted := plan(c.change, c.version)
		if got := asWanted(live, wanted); got != c.asIs {
			t.Errorf("%s: as wanted: %v", name, got)
		}
		if got := sameSpec(t, live, wanted); got != c.sameSpec {
			t.Errorf("%s: of the spec: %v", name, got)
		}
	}
	written := live.DeepCopy() // by other versions of the types, and by others who may
	for _, field := range [][]string{{"spec", "template", "status"}, {"spec", "template", "metadata"}, {"spec", "importsToKeep"}} {
		unstructured.RemoveNestedField(written.Object, field...)
	}
	request := map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": "1024Mi"}}}
	if err := unstructured.SetNestedMap(written.Object, request, "spec", "template", "spec", "storage"); err != nil {
		t.Fatal(err)
	}
	if !sameSpec(t, written, live) {
		t.Errorf("%v is not %v", written.Object["spec"], live.Object["spec"])
	}
}

func sameSpec(t *testing.T, a, b *unstructured.Unstructured) bool {
	t.Helper()
	left, err := specOf(a)
	if err != nil {
		t.Fatal(err)
	}
	right, err := specOf(b)
	if err != nil {
		t.Fatal(err)
	}
	return equality.Semantic.DeepEqual(left, right)
}

func TestBootSourcesAreTold(t *testing.T) {
	s := &scope{hco: theOne(), sources: bootSources(theOne(), shipped(t)), sourced: true, homeless: []string{missingHome("golden")}}
	s.undeployed = map[string]verdict{"fedora-image-cron": {false, ReasonTaken, "it is somebody's"}}
	now := metav1.NewTime(time.Unix(1000, 0))
	sum := summarize(s)
	if !sum.Available.Yes || !sum.Progressing.Yes || sum.Progressing.Reason != ReasonWaiting || !strings.Contains(sum.Progressing.Message, "namespace golden") {
		t.Errorf("a namespace is missing: %+v", sum)
	}
	status := hyperConvergedStatus(s, sum, "v1", now)
	if len(status.DataImportCronTemplates) != len(common) || status.DataImportSchedule == "" {
		t.Fatalf("got %+v", status)
	}
	for _, source := range status.DataImportCronTemplates {
		hindered := meta.FindStatusCondition(source.Status.Conditions, hcov1.ConditionDeployed)
		if (hindered != nil) != (source.Name == "fedora-image-cron") || hindered != nil && (hindered.Status != metav1.ConditionFalse || hindered.Reason != ReasonTaken) {
			t.Errorf("%s: %+v", source.Name, hindered)
		}
	}
	comesBack(t, status)
	s.hco.Status, s.undeployed, s.sourced = status, map[string]verdict{}, false
	if again := hyperConvergedStatus(s, sum, "v1", now); !equality.Semantic.DeepEqual(again, status) {
		t.Error("a pass that did not get so far forgot what the last one found")
	}
	s.sourced = true
	for _, source := range hyperConvergedStatus(s, sum, "v1", now).DataImportCronTemplates {
		if source.Status.Conditions != nil {
			t.Errorf("%s: the condition outlives its cause", source.Name)
		}
	}
}

// comesBack sees that a status that was written and read is the same: it would be written at each pass otherwise.
func comesBack(t *testing.T, status hcov1.HyperConvergedStatus) {
	t.Helper()
	data, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	var read hcov1.HyperConvergedStatus
	if err := json.Unmarshal(data, &read); err != nil || !equality.Semantic.DeepEqual(read, status) {
		t.Errorf("%v: wrote %+v, read %+v", err, status, read)
	}
}

func TestWhatIsShippedIsRead(t *testing.T) {
	for _, template := range shipped(t) {
		if !slices.Contains(common, template.Name) || template.Namespace != "" || template.Spec.ManagedDataSource+"-image-cron" != template.Name {
			t.Errorf("%+v", template)
		}
		if errs := checkTemplate(&template, nil); len(errs) > 0 {
			t.Errorf("%s: %v", template.Name, errs)
		}
	}
	if none, err := shippedSources(nil); none != nil || err != nil {
		t.Errorf("without files: %v, %v", none, err)
	}
	for _, broken := range []string{"kind: [", "{apiVersion: cdi.kubevirt.io/v1beta1, kind: DataImportCron, metadata: {name: x}, spec: {scedule: x}}"} {
		if _, err := shippedSources(fstest.MapFS{"x.yaml": {Data: []byte(broken)}}); err == nil {
			t.Errorf("%s was read", broken)
		}
	}
}

func TestRightsAreOfTheirNamespace(t *testing.T) {
	objects, err := planRights("golden", testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetNamespace() != "golden" || object.GetName() != "os-images.kubevirt.io:view" || object.GetLabels()[LabelComponent] == "" {
			t.Errorf("%s %s/%s %v", object.GetKind(), object.GetNamespace(), object.GetName(), object.GetLabels())
		}
	}
	if len(objects) != 2 {
		t.Errorf("%d objects", len(objects))
	}
}
