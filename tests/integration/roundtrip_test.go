//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture/random"
)

// Of each kind and version so many objects are tried, and so many must be taken: the others are
// what the API server refuses.
const (
	tries = 12
	taken = 4
	// takenStatuses is how many statuses must be, of those objects.
	takenStatuses = 2
)

// Whatever is written in one served version of a kind is there in every other one, and comes back
// the same when it is written in that.
func TestNoServedVersionLosesAnything(t *testing.T) {
	files, err := filepath.Glob("../../controllers/hyperconverged/components/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	ns := namespace(t)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range crd.Spec.Versions {
			if crd.Spec.Versions[i].Served {
				t.Run(crd.Spec.Names.Kind+" "+crd.Spec.Versions[i].Name, func(t *testing.T) {
					trip{crd: crd, version: &crd.Spec.Versions[i], namespace: ns}.run(t)
				})
			}
		}
	}
}

// trip writes objects of a kind in one version and reads them in all.
type trip struct {
	crd       *apiextensionsv1.CustomResourceDefinition
	version   *apiextensionsv1.CustomResourceDefinitionVersion
	namespace string
}

func (k trip) run(t *testing.T) {
	good, told := 0, 0
	var refusal error
	for seed := range uint64(tries) {
		sent := k.make(seed)
		written := sent.DeepCopy()
		err := api.Create(t.Context(), written)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			refusal = err
			continue
		}
		if err != nil {
			t.Fatalf("creating: %v\n%s", err, text(sent.Object))
		}
		good++
		if k.follow(t, sent, written) {
			told++
		}
	}
	if good < taken {
		t.Errorf("%d of %d objects were taken, too few to show anything; the last refusal: %v", good, tries, refusal)
	}
	if _, has := k.version.Schema.OpenAPIV3Schema.Properties["status"]; has && k.subresource() && told < takenStatuses {
		t.Errorf("%d of %d statuses were taken, too few to show anything", told, good)
	}
}

// subresource says whether the status is written by itself.
func (k trip) subresource() bool {
	return k.version.Subresources != nil && k.version.Subresources.Status != nil
}

// follow checks what became of sent, which is written, and says whether its status was taken.
func (k trip) follow(t *testing.T, sent, written *unstructured.Unstructured) (told bool) {
	t.Helper()
	defer func() {
		if err := api.Delete(t.Context(), written); err != nil {
			t.Error(err)
		}
	}()
	if k.subresource() && sent.Object["status"] != nil {
		told = true
		written.Object["status"] = sent.DeepCopy().Object["status"]
		if err := api.Status().Update(t.Context(), written); err != nil {
			if !apierrors.IsInvalid(err) {
				t.Fatalf("writing the status: %v", err)
			}
			told = false
			delete(sent.Object, "status")
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(written), written); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := content(written)
	for name, value := range content(sent) {
		if lost := k.missing(name, value, want[name]); len(lost) > 0 {
			t.Fatalf("lost when it was written: %v\n%s", lost, text(sent.Object))
		}
	}
	for i := range k.crd.Spec.Versions {
		if other := &k.crd.Spec.Versions[i]; other.Served && other.Name != k.version.Name {
			k.there(t, other, written, want)
		}
	}
	return told
}

// there reads an object in another version, writes back what is read there, and reads it in the first.
func (k trip) there(t *testing.T, other *apiextensionsv1.CustomResourceDefinitionVersion, written *unstructured.Unstructured, want map[string]any) {
	t.Helper()
	seen, back := k.blank(other.Name), k.blank(k.version.Name)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(written), seen); err != nil {
		t.Fatalf("reading it as %s: %v\n%s", other.Name, err, text(written.Object))
	}
	status, found := content(seen)["status"]
	if err := api.Update(t.Context(), seen); err != nil {
		t.Fatalf("writing as %s what was read as that: %v\n%s", other.Name, err, text(seen.Object))
	}
	if found && other.Subresources != nil && other.Subresources.Status != nil {
		seen.Object["status"] = status
		if err := api.Status().Update(t.Context(), seen); err != nil {
			t.Fatalf("writing the status as %s: %v", other.Name, err)
		}
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(written), back); err != nil {
		t.Fatal(err)
	}
	got := content(back)
	if converted[k.crd.Spec.Names.Kind] {
		if lost := k.missing("", want, got); len(lost) > 0 {
			t.Fatalf("lost on the way to %s and back: %v\n%s\nwant\n%s", other.Name, lost, text(got), text(want))
		}
	} else if !reflect.DeepEqual(got, want) {
		t.Fatalf("it went to %s and came back as\n%s\nwant\n%s", other.Name, text(got), text(want))
	}
}

func (k trip) blank(version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: k.crd.Spec.Group, Version: version, Kind: k.crd.Spec.Names.Kind})
	return object
}

// make makes an object of this version.
func (k trip) make(seed uint64) *unstructured.Unstructured {
	maker := random.Maker{Source: random.Bytes(random.Seeded(seed, 1<<14)), Sparse: int(seed % 4), MaxDepth: 14, Values: fitting,
		Allowed: func(path string) bool { return !slices.Contains(refused, path) }}
	maker.Alone = func(path string) []string { return alternatives[path] }
	object := k.blank(k.version.Name)
	for _, name := range slices.Sorted(maps.Keys(k.version.Schema.OpenAPIV3Schema.Properties)) {
		property := k.version.Schema.OpenAPIV3Schema.Properties[name]
		switch name {
		case "apiVersion", "kind", "metadata":
		default:
			object.Object[name] = maker.Value(&property, k.crd.Spec.Names.Kind+"."+name)
		}
	}
	object.SetName(fmt.Sprintf("made-%d", seed))
	if name := onlyName[k.crd.Spec.Names.Kind]; name != "" {
		object.SetName(name)
	}
	if k.crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		object.SetNamespace(k.namespace)
	}
	data, err := object.MarshalJSON() // numbers become those of JSON
	if err == nil {
		err = object.UnmarshalJSON(data)
	}
	if err != nil {
		return &unstructured.Unstructured{Object: map[string]any{"error": err.Error()}}
	}
	return object
}

// onlyName are the names of objects of which there is one.
var onlyName = map[string]string{"HyperConverged": "kubevirt-hyperconverged", "SSP": "ssp-kubevirt-hyperconverged"}

// converted are kinds whose versions differ. The other version's defaults come to such an object on
// its way, and what is empty goes.
var converted = map[string]bool{"HyperConverged": true}

// refused are fields that rules of the definitions refuse, whatever is in them.
var refused = []string{
	"HostPathProvisioner.spec.featureGates", "HostPathProvisioner.spec.workload",
	"SSP.spec.vmConsoleProxy", "SSP.spec.tokenGenerationService",
	"SSP.spec.commonTemplates", "SSP.spec.tlsSecurityProfile",
}

// alternatives are the fields of objects of which there is to be just one.
var alternatives = map[string][]string{
	"VolumeSnapshot.spec.source":        {"persistentVolumeClaimName", "volumeSnapshotContentName"},
	"VolumeSnapshotContent.spec.source": {"snapshotHandle", "volumeHandle"},
}

// fitting are values of fields of which the schema does not say all.
func fitting(path string) []any {
	switch {
	case path == "HostPathProvisioner.spec.storagePools":
		claims := map[string]any{
			"storageClassName": "fast", "accessModes": []any{"ReadWriteOnce"},
			"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		}
		return []any{[]any{map[string]any{"name": "local", "path": "/pool"}, map[string]any{"name": "claims", "path": "/claims", "pvcTemplate": claims}}}
	case path == "HostPathProvisioner.spec.pathConfig":
		return []any{map[string]any{"path": "/old", "useNamingPrefix": true}}
	case path == "VirtualMachineBackup.spec":
		source := map[string]any{"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "daily"}
		return []any{map[string]any{"source": source, "pvcName": "backups"}, map[string]any{"source": source, "pvcName": "backups", "mode": "Pull", "tokenSecretRef": "token", "ttlDuration": "1h0m0s"}}
	case path == "VirtualMachineBackupTracker.spec.source":
		return []any{map[string]any{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}}
	case path == "VolumeSnapshotContent.spec.volumeSnapshotRef":
		return []any{map[string]any{"name": "snapshot", "namespace": "prod"}}
	case strings.HasPrefix(path, "SSP.spec") && strings.HasSuffix(path, ".namespace"):
		return []any{"golden", ""}
	case strings.HasPrefix(path, "HyperConverged.") && strings.HasSuffix(path, ".template.metadata"):
		return []any{map[string]any{"labels": map[string]any{"os": "fedora"}, "annotations": map[string]any{"note": "ümlaut-日本"}}}
	}
	return nil
}

// content is an object without what says which one it is.
func content(object *unstructured.Unstructured) map[string]any {
	all := map[string]any{}
	for name, value := range object.Object {
		switch name {
		case "apiVersion", "kind", "metadata":
		default:
			all[name] = value
		}
	}
	return all
}

// missing are the paths of what is in want and not in got; got may have more, by default.
func (k trip) missing(path string, want, got any) []string {
	var lost []string
	switch want := want.(type) {
	case map[string]any:
		found, ok := got.(map[string]any)
		if !ok && !k.meansNothing(want) {
			return []string{path}
		}
		for name, value := range want {
			lost = append(lost, k.missing(path+"."+name, value, found[name])...)
		}
		return lost
	case []any:
		found, ok := got.([]any)
		if (!ok || len(found) != len(want)) && !k.meansNothing(want) {
			return []string{path}
		}
		for i := range want {
			lost = append(lost, k.missing(fmt.Sprintf("%s[%d]", path, i), want[i], found[i])...)
		}
		return lost
	}
	if !k.same(want, got) && (got != nil || !k.meansNothing(want)) {
		return []string{path}
	}
	return nil
}

// same says whether got is want, or the same quantity as a conversion writes it: 1 becomes "1".
func (k trip) same(want, got any) bool {
	if reflect.DeepEqual(want, got) {
		return true
	}
	asked, noneAsked := resource.ParseQuantity(fmt.Sprint(want))
	found, noneFound := resource.ParseQuantity(fmt.Sprint(got))
	return converted[k.crd.Spec.Names.Kind] && noneAsked == nil && noneFound == nil && asked.Cmp(found) == 0
}

// meansNothing says whether a conversion may leave value out.
func (k trip) meansNothing(value any) bool {
	if !converted[k.crd.Spec.Names.Kind] {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		for _, one := range value {
			if !k.meansNothing(one) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return reflect.ValueOf(value).IsZero()
}

func text(object any) string {
	data, err := json.MarshalIndent(object, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
