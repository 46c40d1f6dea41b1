package subresource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/upload"
)

// Where the API of upload tokens is.
const (
	uploadResource    = "uploadtokenrequests"
	uploadKind        = "UploadTokenRequest"
	maxUploadRequest  = 64 << 10 // bytes of a request for a token
	unreadableRequest = "reading the UploadTokenRequest: %s"
)

// uploads is upload.cdi.kubevirt.io.
var uploads = neighbour{
	versions: []schema.GroupVersion{cdiupload.SchemeGroupVersion},
	title:    "Tokens for uploads",
	resources: []metav1.APIResource{{
		Name: uploadResource, SingularName: "uploadtokenrequest", Namespaced: true, Kind: uploadKind,
		Verbs: metav1.Verbs{"create"}, ShortNames: []string{"utr", "utrs"},
	}},
	routes: []route{{method: http.MethodPost, path: uploadResource, serve: (*Server).createUploadToken}},
	descriptions: map[string]description{
		uploadResource: {
			does: "Gives out a token for an upload to a claim, in the status of the answer. Nothing is stored.", body: cdiupload.UploadTokenRequest{}, needed: true,
			kind:    metav1.GroupVersionKind{Group: cdiupload.SchemeGroupVersion.Group, Version: cdiupload.SchemeGroupVersion.Version, Kind: uploadKind},
			answers: map[int]any{http.StatusOK: cdiupload.UploadTokenRequest{}},
		},
	},
}

// createUploadToken answers a request for a token with the token in its status. Nothing is stored.
func (s *Server) createUploadToken(w http.ResponseWriter, r *http.Request) error {
	user, err := s.proxy.identify(r)
	if err != nil {
		return err
	}
	if err := s.authorizeUpload(r, user); err != nil {
		return err
	}
	asked, err := readTokenRequest(w, r)
	if err != nil {
		return err
	}
	if s.signing == nil {
		return errors.New("there is no key that signs tokens")
	}
	key, err := s.signing.Get(r.Context())
	if err != nil {
		return fmt.Errorf("reading the key that signs tokens: %w", err)
	}
	target, err := s.uploadTarget(r, asked.Spec.PvcName)
	if err != nil {
		return err
	}
	if asked.Status.Token, err = upload.Sign(key, target, s.signing.Now()); err != nil {
		return fmt.Errorf("making a token: %w", err)
	}
	log.FromContext(r.Context()).Info("gave out an upload token", "claim", target.Namespace+"/"+target.Name, "user", user.Username)
	asked.TypeMeta = metav1.TypeMeta{APIVersion: cdiupload.SchemeGroupVersion.String(), Kind: uploadKind}
	asked.Namespace = target.Namespace
	w.Header().Set("Cache-Control", "no-store")
	write(w, r, http.StatusOK, asked)
	return nil
}

// uploadTarget is the claim of the request's namespace called name. A token for one that is there is good for that alone.
func (s *Server) uploadTarget(r *http.Request, name string) (upload.Target, error) {
	target := upload.Target{Namespace: r.PathValue("namespace"), Name: name}
	claim := &corev1.PersistentVolumeClaim{}
	err := s.live.Get(r.Context(), client.ObjectKey{Namespace: target.Namespace, Name: name}, claim)
	if client.IgnoreNotFound(err) != nil {
		return target, fmt.Errorf("reading PersistentVolumeClaim %s: %w", name, err)
	}
	target.UID = claim.UID // of none while it is yet to be made, as its DataVolume may just have been
	return target, nil
}

// authorizeUpload asks the API server whether user may create tokens in the namespace.
func (s *Server) authorizeUpload(r *http.Request, user authenticationv1.UserInfo) error {
	return s.review(r, user, attributesOf(r, cdiupload.SchemeGroupVersion, resource{name: uploadResource}, "create"))
}

// readTokenRequest reads what r asks for, and says what is wrong with it.
func readTokenRequest(w http.ResponseWriter, r *http.Request) (*cdiupload.UploadTokenRequest, error) {
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUploadRequest))
	if err != nil {
		return nil, badRequest(unreadableRequest, err)
	}
	asked := &cdiupload.UploadTokenRequest{}
	if err := json.Unmarshal(content, asked); err != nil {
		return nil, badRequest(unreadableRequest, err)
	}
	for _, problem := range []struct {
		wrong bool
		what  string
	}{
		{asked.APIVersion != "" && asked.APIVersion != cdiupload.SchemeGroupVersion.String(), fmt.Sprintf("apiVersion is %q; write %s", asked.APIVersion, cdiupload.SchemeGroupVersion)},
		{asked.Kind != "" && asked.Kind != uploadKind, fmt.Sprintf("kind is %q; write %s", asked.Kind, uploadKind)},
		{asked.Namespace != "" && asked.Namespace != r.PathValue("namespace"), "metadata.namespace is not the namespace of the request"},
		{len(validation.IsDNS1123Subdomain(asked.Spec.PvcName)) > 0, "spec.pvcName must be the name of a PersistentVolumeClaim"},
	} {
		if problem.wrong {
			return nil, badRequest(unreadableRequest, problem.what)
		}
	}
	return asked, nil
}
