package exportserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// define gives out the definition of the VM, or the Secret that it names: as YAML to who asks for that, and else as JSON.
func (s *Server) define(w http.ResponseWriter, r *http.Request) {
	var to place
	if r.URL.Path == vmexport.PathExternalManifest {
		var err error
		if to, err = outside(r); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	kind := "application/json"
	body, err := s.objects(r.URL.Path)
	if err == nil && to != (place{}) {
		body, err = moved(body, "https://"+r.Host, to)
	}
	if err == nil && strings.Contains(r.Header.Get("Accept"), "yaml") {
		kind = "application/yaml"
		body, err = documents(body)
	}
	if err != nil {
		log.FromContext(r.Context()).Error(err, "Giving out the definition failed")
		refuse(w, http.StatusInternalServerError, "the definition cannot be read; see the log of the export's pod")
		return
	}
	w.Header().Set("Content-Type", kind)
	if r.Method == http.MethodGet {
		_, _ = w.Write(append(body, '\n')) // who asks may be gone
	}
}

// objects are those at path, as JSON: a List, or one object.
func (s *Server) objects(path string) ([]byte, error) {
	if path == vmexport.PathManifest || path == vmexport.PathExternalManifest {
		list, err := os.ReadFile(s.volumes.Manifest)
		if err != nil {
			return nil, fmt.Errorf("reading the definition: %w", err)
		}
		return list, nil
	}
	token, err := s.token()
	if err != nil {
		return nil, err
	}
	secret, err := json.Marshal(&corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: s.volumes.HeaderSecret},
		StringData: map[string]string{vmexport.KeyToken: vmexport.Token + ":" + token},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the Secret: %w", err)
	}
	return secret, nil
}

// documents are the objects of a List, or the one object, as documents of YAML.
func documents(list []byte) ([]byte, error) {
	var all struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("decoding the definition: %w", err)
	}
	if all.Items == nil {
		all.Items = []json.RawMessage{list}
	}
	var text bytes.Buffer
	for _, item := range all.Items {
		one, err := yaml.JSONToYAML(item)
		if err != nil {
			return nil, fmt.Errorf("writing the definition as YAML: %w", err)
		}
		text.WriteString("---\n")
		text.Write(one)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
