package subresource

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rename answers a request as a Server does that reads with live and writes with writer.
func Rename(live client.Reader, writer client.Client, w http.ResponseWriter, r *http.Request) error {
	return newServer(live, writer, &frontProxy{}, nil, Options{}).rename(w, r)
}

// Served are the methods of the paths that are served of gv, for tests that see the API from outside.
func Served(gv schema.GroupVersion) map[string][]string {
	served := map[string][]string{}
	add := func(r route, path string) {
		path = strings.ReplaceAll(path, "{version}", gv.Version)
		served[path] = append(served[path], strings.ToLower(r.method))
	}
	if n := neighbourOf(gv.Group); n != nil {
		for _, r := range n.routes {
			add(r, n.namespacedPath()+r.path)
		}
		return served
	}
	for _, r := range routes {
		if r.missing == "" {
			add(r, namespacedPath+r.path)
		}
	}
	for _, r := range versionPages {
		if r.missing == "" {
			add(r, r.path)
		}
	}
	return served
}
