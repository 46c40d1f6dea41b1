package exportserver

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// place is where the export is reached from outside of the cluster.
type place struct {
	// base is above all that the server has, authority whom to trust there, in PEM; "" where every system does.
	base, authority string
}

// outside is the place that virt-exportproxy tells of. Nothing is believed of it but by who asks, whose definition it is for.
func outside(r *http.Request) (place, error) {
	base := r.Header.Get(vmexport.HeaderBase)
	if !strings.HasPrefix(base, "https://") {
		return place{}, errors.New("this definition is for other clusters: ask virt-exportproxy for it, at the address that status.links.external has")
	}
	authority, err := base64.StdEncoding.DecodeString(r.Header.Get(vmexport.HeaderAuthority))
	if err != nil {
		return place{}, fmt.Errorf("the header %s is not base64: %w", vmexport.HeaderAuthority, err)
	}
	return place{base: base, authority: string(authority)}, nil
}

// moved is list, a definition whose disks are imported from the server at from, with to in its place.
func moved(list []byte, from string, to place) ([]byte, error) {
	all := &unstructured.UnstructuredList{}
	if err := all.UnmarshalJSON(list); err != nil {
		return nil, fmt.Errorf("decoding the definition: %w", err)
	}
	var kept []unstructured.Unstructured
	for _, object := range all.Items {
		var err error
		switch object.GetKind() {
		case "ConfigMap":
			if to.authority == "" {
				continue
			}
			err = unstructured.SetNestedField(object.Object, to.authority, "data", vmexport.KeyAuthority)
		case "VirtualMachine":
			err = moveDisks(object.Object, from, to)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the definition for other clusters: %s: %w", object.GetKind(), err)
		}
		kept = append(kept, object)
	}
	all.Items = kept
	text, err := all.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the definition: %w", err)
	}
	return bytes.TrimSpace(text), nil
}

// moveDisks changes where vm's DataVolumes import from: those that do so from the export.
func moveDisks(vm map[string]any, from string, to place) error {
	templates, _, err := unstructured.NestedSlice(vm, "spec", "dataVolumeTemplates")
	if err != nil || len(templates) == 0 {
		return err //nolint:wrapcheck // it names the field
	}
	for _, one := range templates {
		template, _ := one.(map[string]any)
		source, found, err := unstructured.NestedMap(template, "spec", "source", "http")
		if err != nil {
			return err //nolint:wrapcheck // it names the field
		}
		address, _ := source["url"].(string)
		path, ours := strings.CutPrefix(address, from+vmexport.PathVolumes)
		if !found || !ours {
			continue // what is not exported
		}
		source["url"] = to.base + vmexport.PathVolumes + path
		if to.authority == "" {
			delete(source, "certConfigMap")
		}
		if err := unstructured.SetNestedMap(template, source, "spec", "source", "http"); err != nil {
			return err //nolint:wrapcheck // it names the field
		}
	}
	return unstructured.SetNestedSlice(vm, templates, "spec", "dataVolumeTemplates") //nolint:wrapcheck // it names the field
}
