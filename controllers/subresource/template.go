package subresource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/template"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	templateverbs "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/verbs"
)

// Where the API of templates is.
const (
	templateKind      = "VirtualMachineTemplate"
	templateResource  = "virtualmachinetemplates"
	verbProcess       = "process"
	verbCreate        = "create"
	processPath       = templateResource + "/{name}/" + verbProcess
	createPath        = templateResource + "/{name}/" + verbCreate
	unreadableOptions = "reading the ProcessOptions: %s"
)

// templateGroup is that of templates as they are stored.
var templateGroup = vmtemplatev1beta1.GroupVersion.Group

// templateVersions are those in which templates are stored, the preferred first: another's definition may have the former one alone.
var templateVersions = []string{vmtemplatev1beta1.GroupVersion.Version, "v1alpha1"}

// templates is subresources.template.kubevirt.io.
var templates = neighbour{
	versions: templateverbs.Versions,
	title:    "Templates of virtual machines",
	resources: []metav1.APIResource{
		{Name: templateResource + "/" + verbCreate, Namespaced: true, Kind: templateverbs.KindProcessed, Verbs: metav1.Verbs{"create"}},
		{Name: templateResource + "/" + verbProcess, Namespaced: true, Kind: templateverbs.KindProcessed, Verbs: metav1.Verbs{"create"}},
	},
	routes: []route{
		{method: http.MethodPost, path: processPath, serve: (*Server).processTemplate},
		{method: http.MethodPost, path: createPath, serve: (*Server).createOfTemplate},
	},
	descriptions: map[string]description{
		processPath: {
			does: "Fills in a template, and shows the virtual machine that it makes. Nothing is stored.", body: templateverbs.ProcessOptions{},
			answers: map[int]any{http.StatusOK: templateverbs.ProcessedVirtualMachineTemplate{}},
		},
		createPath: {
			does: "Fills in a template, and creates the virtual machine that it makes.", body: templateverbs.ProcessOptions{},
			answers: map[int]any{http.StatusOK: templateverbs.ProcessedVirtualMachineTemplate{}},
			query:   []parameter{{name: "dryRun", kind: "string", what: "All has everything checked, and creates nothing"}},
		},
	},
}

// askedOfTemplates is the version of the API of templates that r is of.
func askedOfTemplates(r *http.Request) schema.GroupVersion {
	return schema.GroupVersion{Group: templateverbs.Group, Version: r.PathValue("version")}
}

// processTemplate answers with the VM that a template makes. Nothing is stored.
func (s *Server) processTemplate(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.authorizeTemplate(r, verbProcess); err != nil {
		return err
	}
	made, err := s.fillTemplate(w, r)
	if err != nil {
		return err
	}
	writeProcessed(w, r, made)
	return nil
}

// createOfTemplate creates the VM that a template makes. The right to the subresource is the right to that VM, as in the field: so a user
// can be kept to templates. The API server takes virt-api for its creator: to act as the user it would need the right to impersonate
// anybody, and with that all rights that there are. So what depends on who creates a VM is refused. Admission judges it as any other:
// what a VM clones, by the rights of its namespace's ServiceAccount, whoever creates it.
func (s *Server) createOfTemplate(w http.ResponseWriter, r *http.Request) error {
	user, err := s.authorizeTemplate(r, verbCreate)
	if err != nil {
		return err
	}
	dryRun, err := dryRunOf(r)
	if err != nil {
		return err
	}
	made, err := s.fillTemplate(w, r)
	if err != nil {
		return err
	}
	if err := s.createMachine(r.Context(), made.VirtualMachine, key(r), dryRun); err != nil {
		return err
	}
	if len(dryRun) == 0 {
		log.FromContext(r.Context()).Info("created a VirtualMachine of a template", "virtualMachine", r.PathValue("namespace")+"/"+made.VirtualMachine.Name,
			"template", r.PathValue("name"), "user", user.Username)
	}
	writeProcessed(w, r, made)
	return nil
}

// dryRunOf is what the address of r says of an attempt. One that cannot be read is no order to create something.
func dryRunOf(r *http.Request) ([]string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("reading the query of the address: %v", err)
	}
	for _, directive := range query["dryRun"] {
		if directive != metav1.DryRunAll {
			return nil, badRequest("invalid dryRun directive %q: use %s", directive, metav1.DryRunAll)
		}
	}
	return query["dryRun"], nil
}

// authorizeTemplate asks the API server whether who sends r may do verb with the template, and returns who that is.
func (s *Server) authorizeTemplate(r *http.Request, verb string) (authenticationv1.UserInfo, error) {
	user, err := s.proxy.identify(r)
	if err != nil {
		return user, err
	}
	return user, s.review(r, user, attributesOf(r, askedOfTemplates(r), resource{templateResource, verb}, "create"))
}

// fillTemplate fills the template in that r names, with what r says.
func (s *Server) fillTemplate(w http.ResponseWriter, r *http.Request) (*template.Machine, error) {
	options, err := readProcessOptions(w, r)
	if err != nil {
		return nil, err
	}
	stored, err := s.template(r.Context(), key(r))
	if err != nil {
		return nil, err
	}
	tmpl, err := template.FromVirtualMachineTemplate(stored)
	if err != nil {
		return nil, unprocessable(stored.GetName(), err)
	}
	made, err := template.ProcessVirtualMachine(tmpl, options.Parameters)
	if err != nil {
		return nil, unprocessable(stored.GetName(), err)
	}
	return made, nil
}

// template reads the template of key, in the first version that the cluster serves.
func (s *Server) template(ctx context.Context, key client.ObjectKey) (*unstructured.Unstructured, error) {
	for _, version := range templateVersions {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(schema.GroupVersionKind{Group: templateGroup, Version: version, Kind: templateKind})
		err := s.live.Get(ctx, key, found)
		if err == nil {
			return found, nil
		}
		if apierrors.IsNotFound(err) {
			break
		}
		if !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading %s %s: %w", templateKind, key, err)
		}
	}
	return nil, refuse(apierrors.NewNotFound(schema.GroupResource{Group: templateGroup, Resource: templateResource}, key.Name))
}

// unprocessable says why the template called name makes no VM: 409 for a parameter that it does not have, 422 else.
func unprocessable(name string, err error) error {
	if _, undeclared := errors.AsType[*template.UndeclaredError](err); undeclared {
		return refuse(apierrors.NewConflict(schema.GroupResource{Group: templateGroup, Resource: templateResource}, name, err))
	}
	problem := field.Invalid(field.NewPath("spec"), name, err.Error())
	if _, missing := errors.AsType[*template.MissingError](err); missing {
		problem = field.Required(field.NewPath("spec", "parameters"), err.Error())
	}
	return invalidTemplate(name, problem)
}

func invalidTemplate(name string, problem *field.Error) error {
	return refuse(apierrors.NewInvalid(schema.GroupKind{Group: templateGroup, Kind: templateKind}, name, field.ErrorList{problem}))
}

// createMachine creates vm, which the template of key makes, in that one's namespace, and reads the answer into it.
func (s *Server) createMachine(ctx context.Context, vm *virtv1.VirtualMachine, key client.ObjectKey, dryRun []string) error {
	metadata := field.NewPath("spec", "virtualMachine", "metadata")
	if vm.Namespace != "" && vm.Namespace != key.Namespace {
		return invalidTemplate(key.Name, field.Invalid(metadata.Child("namespace"), vm.Namespace,
			"a VirtualMachine is created in its template's namespace; process the template and create the VirtualMachine yourself"))
	}
	if len(vm.OwnerReferences) > 0 { // API servers can ask whether the creator may say that the owner cannot go before
		return invalidTemplate(key.Name, field.Forbidden(metadata.Child("ownerReferences"),
			"none is given an owner so; process the template and create the VirtualMachine yourself"))
	}
	vm.Namespace = key.Namespace
	err := s.client.Create(ctx, vm, &client.CreateOptions{DryRun: dryRun})
	vm.TypeMeta = metav1.TypeMeta{APIVersion: virtv1.GroupVersion.String(), Kind: virtv1.VirtualMachineGroupVersionKind.Kind}
	if said, ok := errors.AsType[*apierrors.StatusError](err); ok && said.ErrStatus.Code >= http.StatusBadRequest && said.ErrStatus.Code < http.StatusInternalServerError {
		return refuse(said) // as when the user creates it
	}
	if err != nil {
		return fmt.Errorf("creating VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}

// writeProcessed answers r with the VM, which may have passwords in it.
func writeProcessed(w http.ResponseWriter, r *http.Request, made *template.Machine) {
	w.Header().Set("Cache-Control", "no-store")
	write(w, r, http.StatusOK, templateverbs.ProcessedVirtualMachineTemplate{
		TypeMeta:       metav1.TypeMeta{APIVersion: askedOfTemplates(r).String(), Kind: templateverbs.KindProcessed},
		TemplateRef:    &corev1.ObjectReference{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")},
		VirtualMachine: made.VirtualMachine, Message: made.Message,
	})
}

// readProcessOptions reads what r asks for, in JSON or YAML, and says what is wrong with it. No body is no options.
func readProcessOptions(w http.ResponseWriter, r *http.Request) (*templateverbs.ProcessOptions, error) {
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, badRequest(unreadableOptions, err)
	}
	options := &templateverbs.ProcessOptions{}
	if err := yaml.UnmarshalStrict(content, options); err != nil {
		return nil, badRequest(unreadableOptions, err)
	}
	version, err := schema.ParseGroupVersion(options.APIVersion)
	for _, problem := range []struct {
		wrong bool
		what  string
	}{
		{err != nil || !version.Empty() && !slices.Contains(templateverbs.Versions, version), fmt.Sprintf("apiVersion is %q; write %s", options.APIVersion, askedOfTemplates(r))},
		{options.Kind != "" && options.Kind != templateverbs.KindProcessOptions, fmt.Sprintf("kind is %q; write %s", options.Kind, templateverbs.KindProcessOptions)},
		{options.Namespace != "" && options.Namespace != r.PathValue("namespace"), "metadata.namespace is not the namespace of the request"},
	} {
		if problem.wrong {
			return nil, badRequest(unreadableOptions, problem.what)
		}
	}
	return options, nil
}
