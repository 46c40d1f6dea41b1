package subresource

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// neighbour is an API group beside subresources.kubevirt.io that virt-api answers for, too.
type neighbour struct {
	// versions are those that are served, the preferred first. Each serves the same.
	versions []schema.GroupVersion
	// title is that of its documents.
	title string
	// resources are what clients discover.
	resources []metav1.APIResource
	// routes are what is asked of it in a namespace. They find out themselves who asks, and whether he may.
	routes []route
	// descriptions are those of routes, by their paths.
	descriptions map[string]description
}

// neighbours are all of them.
func neighbours() []neighbour { return []neighbour{uploads, templates} }

// neighbourOf is the one that is called group; nil for another.
func neighbourOf(group string) *neighbour {
	for _, n := range neighbours() {
		if n.group() == group {
			return &n
		}
	}
	return nil
}

func (n *neighbour) group() string          { return n.versions[0].Group }
func (n *neighbour) groupPath() string      { return "/apis/" + n.group() }
func (n *neighbour) versionPath() string    { return n.groupPath() + "/{version}" }
func (n *neighbour) namespacedPath() string { return n.versionPath() + "/namespaces/{namespace}/" }

// addNeighbour adds what is served of n to the multiplexer.
func (s *Server) addNeighbour(mux *http.ServeMux, n neighbour) {
	add := func(method, path string, serve answer) {
		serve = known(n.versions, serve)
		mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(s, w, r); err != nil {
				fail(w, r, err)
			}
		})
	}
	add(http.MethodGet, n.groupPath(), n.page)
	add(http.MethodGet, n.versionPath(), n.list)
	add(http.MethodGet, "/openapi/v3"+n.versionPath(), n.describe)
	for _, r := range n.routes {
		path := n.namespacedPath() + r.path
		add(r.method, path, r.serve)
		mux.HandleFunc(path, func(w http.ResponseWriter, request *http.Request) {
			what := schema.GroupResource{Group: n.group(), Resource: r.resource().String()}
			fail(w, request, refuse(apierrors.NewMethodNotSupported(what, request.Method)))
		})
	}
}

// page shows the group with its versions.
func (n *neighbour) page(_ *Server, w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, apiGroup(n.versions))
	return nil
}

// list shows what there is of a version.
func (n *neighbour) list(_ *Server, w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: n.asked(r).String(), APIResources: n.resources,
	})
	return nil
}

// describe shows a version's document of OpenAPI 3.
func (n *neighbour) describe(s *Server, w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, s.document(n.asked(r)))
	return nil
}

// asked is the version that r is of.
func (n *neighbour) asked(r *http.Request) schema.GroupVersion {
	return schema.GroupVersion{Group: n.group(), Version: r.PathValue("version")}
}
