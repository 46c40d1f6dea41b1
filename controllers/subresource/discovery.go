package subresource

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	virtv1 "kubevirt.io/api/core/v1"
)

func (s *Server) rootPaths(w http.ResponseWriter, r *http.Request) error {
	paths := []string{"/apis", groupPath, "/healthz", "/openapi/v2", "/openapi/v3"}
	for _, n := range neighbours() {
		paths = append(paths, n.groupPath())
	}
	for _, gv := range groupVersions() {
		paths = append(paths, "/apis/"+gv.String())
	}
	slices.Sort(paths)
	write(w, r, http.StatusOK, metav1.RootPaths{Paths: paths})
	return nil
}

func (s *Server) groups(w http.ResponseWriter, r *http.Request) error {
	groups := []metav1.APIGroup{apiGroup(virtv1.SubresourceGroupVersions)}
	for _, n := range neighbours() {
		groups = append(groups, apiGroup(n.versions))
	}
	write(w, r, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: groups})
	return nil
}

func (s *Server) group(w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, apiGroup(virtv1.SubresourceGroupVersions))
	return nil
}

// apiGroup is a group with its versions, the preferred first.
func apiGroup(versions []schema.GroupVersion) metav1.APIGroup {
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: versions[0].Group}
	for _, gv := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

func (s *Server) resources(w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: virtv1.SubresourceGroupName + "/" + r.PathValue("version"),
		APIResources: apiResources(),
	})
	return nil
}

// kinds are of what the subresources are of; without one, clients do not see them. What is no
// subresource has none: it would be a second place at which that kind is kept.
var kinds = map[string]schema.GroupVersionKind{
	"virtualmachines":         virtv1.VirtualMachineGroupVersionKind,
	"virtualmachineinstances": virtv1.VirtualMachineInstanceGroupVersionKind,
}

// apiResources are the subresources that are served, by name.
func apiResources() []metav1.APIResource {
	found := map[string]metav1.APIResource{}
	for _, r := range routes {
		if r.missing != "" {
			continue
		}
		name := strings.ReplaceAll(r.path, "/{name}", "")
		name, _, _ = strings.Cut(name, "/{")
		one := metav1.APIResource{Name: name, Namespaced: true, Verbs: metav1.Verbs{verbs[r.method]}}
		if kind := kinds[r.resource().name]; kind.Kind != "" {
			one.Group, one.Version, one.Kind = kind.Group, kind.Version, kind.Kind
		}
		found[name] = one
	}
	list := make([]metav1.APIResource, 0, len(found))
	for _, one := range found {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// healthy says that virt-api serves.
func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) error {
	if _, err := io.WriteString(w, "ok"); err != nil {
		return fmt.Errorf("answering: %w", err)
	}
	return nil
}

// connected says that virt-api reaches the API server.
func (s *Server) connected(w http.ResponseWriter, r *http.Request) error {
	if err := s.ping(r.Context()); err != nil {
		return refuse(apierrors.NewInternalError(fmt.Errorf("reaching the API server: %w", err)))
	}
	write(w, r, http.StatusOK, map[string]any{"apiserver": map[string]string{"connectivity": "ok"}})
	return nil
}

// version says what runs here, in the form in which the field does.
func (s *Server) version(w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, version.Info{
		GitVersion: s.options.Version, GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	})
	return nil
}

// guestfs names the image of the guestfs tools, which virtctl's verb of that name runs, in the form in which the field
// does: parts of a name, which are empty where it is given whole.
func (s *Server) guestfs(w http.ResponseWriter, r *http.Request) error {
	if s.options.GuestfsImage == "" {
		return notImplemented(noGuestfs)
	}
	write(w, r, http.StatusOK, map[string]string{"registry": "", "tag": "", "digest": "", "imagePrefix": "", "gsImage": s.options.GuestfsImage})
	return nil
}
