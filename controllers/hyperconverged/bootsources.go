package hyperconverged

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

var cronKind = cdiv1.SchemeGroupVersion.WithKind("DataImportCron")

// shippedSources returns the common boot images of files, in the order of the files' names.
func shippedSources(files fs.FS) ([]hcov1.DataImportCronTemplate, error) {
	if files == nil {
		return nil, nil
	}
	objects, err := render.Bundle(files, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the common boot images: %w", err)
	}
	var shipped []hcov1.DataImportCronTemplate
	for _, object := range objects {
		cron, err := readCron(object)
		if err != nil {
			return nil, fmt.Errorf("reading the common boot image %s: %w", object.GetName(), err)
		}
		shipped = append(shipped, hcov1.DataImportCronTemplate{
			TemplateMetadata: hcov1.TemplateMetadata{Name: cron.Name, Labels: cron.Labels, Annotations: cron.Annotations},
			Spec:             &cron.Spec,
		})
	}
	return shipped, nil
}

// readCron reads a DataImportCron strictly.
func readCron(object *unstructured.Unstructured) (*cdiv1.DataImportCron, error) {
	content, err := json.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	cron, decoder := &cdiv1.DataImportCron{}, json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(cron); err != nil {
		return nil, fmt.Errorf("decoding it: %w", err)
	}
	return cron, nil
}

// bootSources returns the boot sources that hco asks for, in the order of their names: those of
// shipped that it neither leaves out nor changes, those that it changes, and users' own. Those that do not
// say when are looked for when the installation looks: without a schedule nothing ever would be. What hco says has
// been checked.
func bootSources(hco *hcov1.HyperConverged, shipped []hcov1.DataImportCronTemplate) []hcov1.DataImportCronTemplateStatus {
	asked := hco.Spec.WorkloadSources
	own := map[string]*hcov1.DataImportCronTemplate{}
	for i := range asked.DataImportCronTemplates {
		own[asked.DataImportCronTemplates[i].Name] = &asked.DataImportCronTemplates[i]
	}
	var sources []hcov1.DataImportCronTemplateStatus
	if !ptr.Deref(asked.EnableCommonBootImageImport, true) {
		shipped = nil
	}
	for i := range shipped {
		source := hcov1.DataImportCronTemplateStatus{DataImportCronTemplate: *shipped[i].DeepCopy()}
		source.Status.CommonTemplate = true
		source.Namespace = ptr.Deref(asked.CommonBootImageNamespace, "")
		source.Spec.Schedule = "" // the shipped one is for those who take the file
		if changed := own[source.Name]; changed != nil {
			delete(own, source.Name)
			if !counts(changed) {
				continue
			}
			change(&source, changed)
		}
		sources = append(sources, source)
	}
	for _, template := range own {
		if counts(template) {
			sources = append(sources, hcov1.DataImportCronTemplateStatus{DataImportCronTemplate: *template.DeepCopy()})
		}
	}
	for i := range sources {
		if sources[i].Spec.Schedule == "" {
			sources[i].Spec.Schedule = importSchedule(hco.UID)
		}
	}
	slices.SortFunc(sources, func(a, b hcov1.DataImportCronTemplateStatus) int { return strings.Compare(a.Name, b.Name) })
	return sources
}

// counts says whether a template is to be deployed.
func counts(template *hcov1.DataImportCronTemplate) bool {
	said, found := template.Annotations[hcov1.AnnotationTemplateEnable]
	return !found || strings.EqualFold(said, "true")
}

// change makes of a common boot image what a template of its name says.
func change(source *hcov1.DataImportCronTemplateStatus, template *hcov1.DataImportCronTemplate) {
	source.Spec = template.Spec.DeepCopy()
	source.Namespace = template.Namespace
	source.Labels = joined(source.Labels, template.Labels)
	source.Annotations = joined(source.Annotations, template.Annotations)
	source.Status.Modified = true
}

// joined has the entries of both; over's come first.
func joined(under, over map[string]string) map[string]string {
	if len(over) == 0 {
		return under
	}
	all := maps.Clone(under)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, over)
	return all
}

// importSchedule is when an installation looks for boot images: twice a day, at a time
// that is always its own, so that not all of them ask a registry at once.
func importSchedule(installation types.UID) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(installation)) // it never fails
	sum := hash.Sum32()
	return fmt.Sprintf("%d %d/12 * * *", sum%60, sum/60%12)
}

// homeOf is the namespace of a boot source.
func homeOf(source *hcov1.DataImportCronTemplateStatus) string {
	if source.Namespace != "" {
		return source.Namespace
	}
	return hcov1.CommonBootImageNamespace
}

// goldenNamespaces are those in which everyone may see boot images: that of the common ones, and that
// of users' own that name none. Where nobody has named another, it is one only as long as a boot source is wanted in
// it, or when the operator has made it, since images may be in it.
func goldenNamespaces(hco *hcov1.HyperConverged, sources []hcov1.DataImportCronTemplateStatus, made bool) []string {
	common := ptr.Deref(hco.Spec.WorkloadSources.CommonBootImageNamespace, "")
	var golden []string
	if common != "" && common != hcov1.CommonBootImageNamespace {
		golden, made = append(golden, common), false
	}
	for i := range sources {
		made = made || homeOf(&sources[i]) == hcov1.CommonBootImageNamespace
	}
	if made {
		golden = append(golden, hcov1.CommonBootImageNamespace)
	}
	return golden
}

// planRights returns what lets everyone see and clone the boot images of a namespace.
func planRights(namespace string, base render.Values) ([]*unstructured.Unstructured, error) {
	base.Namespace = namespace
	objects, err := render.Folder(components.Files(), components.BootSources, base)
	if err != nil {
		return nil, fmt.Errorf("planning the rights to boot images of namespace %s: %w", namespace, err)
	}
	mark(objects, components.BootSources, base.Version)
	return objects, nil
}

// planCron returns the DataImportCron of a boot source.
func planCron(source *hcov1.DataImportCronTemplateStatus, version string) (*unstructured.Unstructured, error) {
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: homeOf(source), Name: source.Name, Labels: source.Labels, Annotations: source.Annotations},
		Spec:       *source.Spec,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cron)
	if err != nil {
		return nil, fmt.Errorf("encoding DataImportCron %s/%s: %w", cron.Namespace, cron.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(cronKind)
	unstructured.RemoveNestedField(object.Object, "status")
	mark([]*unstructured.Unstructured{object}, components.BootSources, version)
	hash, err := contentOf(object)
	if err != nil {
		return nil, err
	}
	object.SetAnnotations(joined(object.GetAnnotations(), map[string]string{annotationContent: hash}))
	return object, nil
}

// contentOf is a hash of what is wanted of an object: that it is there tells without a request that nothing changed.
func contentOf(object *unstructured.Unstructured) (string, error) {
	content, err := json.Marshal([]any{object.Object["spec"], object.GetLabels(), object.GetAnnotations()})
	if err != nil {
		return "", fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	hash := fnv.New64a()
	_, _ = hash.Write(content) // it never fails
	return fmt.Sprintf("%016x", hash.Sum64()), nil
}

// asWanted says whether a DataImportCron that exists is what the operator wrote, and still is to be.
func asWanted(live, wanted metav1.Object) bool {
	return covers(live.GetLabels(), wanted.GetLabels()) && covers(live.GetAnnotations(), wanted.GetAnnotations())
}

// specOf reads the spec of a DataImportCron. Two are compared so, not as they are written, which is another with each
// version of the API's types: what is another spec costs the DataImportCron.
func specOf(object *unstructured.Unstructured) (*cdiv1.DataImportCronSpec, error) {
	cron := &cdiv1.DataImportCron{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cron); err != nil {
		return nil, fmt.Errorf("decoding DataImportCron %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return &cron.Spec, nil
}
