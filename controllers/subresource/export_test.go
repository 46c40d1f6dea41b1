package subresource

import "strings"

// Served are the methods of the paths that are served of version, for tests that see the API from outside.
func Served(version string) map[string][]string {
	served := map[string][]string{}
	add := func(r route, path string) {
		path = strings.ReplaceAll(path, "{version}", version)
		served[path] = append(served[path], strings.ToLower(r.method))
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
