package subresource

import (
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
)

// verbs are what a role must allow for a method.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPut: "update",
}

// authorize asks the API server whether user may do what r asks of what.
func (s *Server) authorize(r *http.Request, user authenticationv1.UserInfo, what resource) error {
	version := schema.GroupVersion{Group: virtv1.SubresourceGroupName, Version: r.PathValue("version")}
	return s.review(r, user, attributesOf(r, version, what, verbs[r.Method]))
}

// attributesOf is what r asks for as roles name it.
func attributesOf(r *http.Request, version schema.GroupVersion, what resource, verb string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Group: version.Group, Version: version.Version, Namespace: r.PathValue("namespace"), Name: r.PathValue("name"),
		Resource: what.name, Subresource: what.subresource, Verb: verb,
	}
}

// review asks the API server whether a role allows user what attributes say.
func (s *Server) review(r *http.Request, user authenticationv1.UserInfo, attributes *authorizationv1.ResourceAttributes) error {
	what := resource{attributes.Resource, attributes.Subresource}
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra, ResourceAttributes: attributes,
	}}
	if err := s.client.Create(r.Context(), review); err != nil {
		return fmt.Errorf("asking whether %s may %s %s: %w", user.Username, attributes.Verb, what, err)
	}
	if review.Status.Allowed {
		return nil
	}
	reason := fmt.Errorf("User %q cannot %s resource %q in API group %q in the namespace %q", //nolint:staticcheck // the API server's own words
		user.Username, attributes.Verb, what, attributes.Group, attributes.Namespace)
	if said := review.Status.Reason; said != "" {
		reason = fmt.Errorf("%w: %s", reason, said)
	}
	return refuse(apierrors.NewForbidden(schema.GroupResource{Group: attributes.Group, Resource: what.name}, attributes.Name, reason))
}
