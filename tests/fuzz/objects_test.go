package fuzz

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	admissionserver "github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/internal/supported"
	"github.com/slipway-vm/slipway/tests/fixture/random"
)

// object is a kind that admission judges.
type object struct {
	file, version, kind string
	// mutate and validate are the paths of its webhooks; mutate may be empty.
	mutate, validate string
}

var objects = []object{
	{"kubevirt.io_virtualmachineinstances.yaml", "v1", "VirtualMachineInstance", "/virtualmachineinstances-mutate", "/virtualmachineinstances-validate"},
	{"kubevirt.io_virtualmachines.yaml", "v1", "VirtualMachine", "/virtualmachines-mutate", "/virtualmachines-validate"},
	{"kubevirt.io_virtualmachineinstancereplicasets.yaml", "v1", "VirtualMachineInstanceReplicaSet", "", "/virtualmachineinstancereplicasets-validate"},
	{"pool.kubevirt.io_virtualmachinepools.yaml", "v1beta1", "VirtualMachinePool", "", "/virtualmachinepools-validate"},
	{"cdi.kubevirt.io_datavolumes.yaml", "v1beta1", "DataVolume", "/datavolumes-mutate", "/datavolumes-validate"},
	{"cdi.kubevirt.io_dataimportcrons.yaml", "v1beta1", "DataImportCron", "", "/dataimportcrons-validate"},
	{"cdi.kubevirt.io_volumeimportsources.yaml", "v1beta1", "VolumeImportSource", "", "/volumeimportsources-validate"},
	{"cdi.kubevirt.io_volumeuploadsources.yaml", "v1beta1", "VolumeUploadSource", "", "/volumeuploadsources-validate"},
	{"cdi.kubevirt.io_volumeclonesources.yaml", "v1beta1", "VolumeCloneSource", "", "/volumeclonesources-validate"},
	{"cdi.kubevirt.io_storageprofiles.yaml", "v1beta1", "StorageProfile", "", "/storageprofiles-validate"},
	{"cdi.kubevirt.io_objecttransfers.yaml", "v1beta1", "ObjectTransfer", "", "/objecttransfers-validate"},
	{"cdi.kubevirt.io_cdis.yaml", "v1beta1", "CDI", "", "/cdis-validate"},
	{"snapshot.kubevirt.io_virtualmachinesnapshots.yaml", "v1beta1", "VirtualMachineSnapshot", "", "/virtualmachinesnapshots-validate"},
	{"snapshot.kubevirt.io_virtualmachinerestores.yaml", "v1beta1", "VirtualMachineRestore", "", "/virtualmachinerestores-validate"},
	{"clone.kubevirt.io_virtualmachineclones.yaml", "v1beta1", "VirtualMachineClone", "", "/virtualmachineclones-validate"},
	{"template.kubevirt.io_virtualmachinetemplaterequests.yaml", "v1beta1", "VirtualMachineTemplateRequest", "", "/virtualmachinetemplaterequests-validate"},
	{"backup.kubevirt.io_virtualmachinebackups.yaml", "v1alpha1", "VirtualMachineBackup", "", "/virtualmachinebackups-validate"},
	{"backup.kubevirt.io_virtualmachinebackuptrackers.yaml", "v1alpha1", "VirtualMachineBackupTracker", "", "/virtualmachinebackuptrackers-validate"},
	{"export.kubevirt.io_virtualmachineexports.yaml", "v1beta1", "VirtualMachineExport", "", "/virtualmachineexports-validate"},
}

// yes lets everybody do everything.
type yes struct{ client.Client }

func (yes) Create(_ context.Context, review client.Object, _ ...client.CreateOption) error {
	if one, ok := review.(*authorizationv1.SubjectAccessReview); ok {
		one.Status.Allowed = true
	}
	return nil
}

// court is what admission makes of objects of all kinds.
type court struct {
	handlers    map[string]admission.Handler
	definitions []*definition
}

func newCourt() (*court, error) {
	now := func() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }
	c := &court{handlers: admissionserver.Handlers(open{}, yes{}, "slipway", now)}
	for _, one := range objects {
		read, err := readDefinition(one.file, one.version)
		if err != nil {
			return nil, err
		}
		c.definitions = append(c.definitions, read)
	}
	return c, nil
}

// made is an object of the kind, as the API server hands it to webhooks; nil where it would refuse it.
func (c *court) made(kind int, source *random.Source) map[string]any {
	read := c.definitions[kind]
	maker := random.Maker{Source: source, Sparse: 1 + source.Choose(6), MaxDepth: 12}
	if acted := supported.Fields(objects[kind].kind); len(acted) > 0 && !source.OneIn(4) {
		maker.Allowed, maker.Alone = actedOn(acted), oneSource
		maker.Values = func(path string) []any {
			for _, f := range acted {
				if f.Path == path && len(f.Only) > 0 {
					return only(f.Only)
				}
			}
			return sensible[path[strings.LastIndexByte(path, '.')+1:]]
		}
	}
	made := map[string]any{
		"apiVersion": "x/" + objects[kind].version, "kind": objects[kind].kind, "metadata": map[string]any{"name": "x", "namespace": "prod"},
	}
	for _, name := range slices.Sorted(maps.Keys(read.schema.Properties)) { // always the same of the same data
		if property := read.schema.Properties[name]; name != "apiVersion" && name != "kind" && name != "metadata" && name != "status" {
			made[name] = maker.Value(&property, name)
		}
	}
	read.complete(made)
	if len(read.validate(made)) > 0 {
		return nil
	}
	return made
}

// sensible are values of fields by their last name, for objects of use.
var sensible = map[string][]any{
	"apiGroup": {"kubevirt.io", ""}, "kind": {"VirtualMachine", "PersistentVolumeClaim", "strange"},
	"url":      {"http://images.example.com/disk.qcow2", "docker://registry.example.com/disk:1", "ftp://x", ""},
	"schedule": {"0 3 * * *", "often"}, "storage": {"1Gi", "0", "-1"}, "runStrategy": {"Always", "Halted", "Sometimes"},
	"accessModes": {[]any{"ReadWriteOnce"}, []any{}}, "name": {"one", "two", "Three"}, "namespace": {"prod", "other"},
	"running": {nil, true}, "revisionName": {"", "x"}, "ttlDuration": {"1h0m0s", "soon"},
}

// oneSource are the sources that a DataVolume is filled from, of which it has one.
func oneSource(path string) []string {
	if strings.HasSuffix(path, ".source") {
		return []string{"http", "s3", "gcs", "registry", "pvc", "upload", "blank", "snapshot"}
	}
	return nil
}

// ask has webhooks answer to an object, which was old before; nil for one that is created.
func (c *court) ask(ctx context.Context, kind int, path string, made, old []byte) admission.Response {
	request := admissionv1.AdmissionRequest{
		Namespace: "prod", Name: "x", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: made},
		Kind: metav1.GroupVersionKind{Group: "x", Version: objects[kind].version, Kind: objects[kind].kind},
	}
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: old}
	}
	return c.handlers[path].Handle(ctx, admission.Request{AdmissionRequest: request})
}

// judge returns an error where an answer is not as it should be.
func (c *court) judge(ctx context.Context, kind int, made, old map[string]any) (admitted bool, err error) {
	raw, err := json.Marshal(made)
	if err != nil {
		return false, fmt.Errorf("encoding the object: %w", err)
	}
	var before []byte
	if old != nil {
		if before, err = json.Marshal(old); err != nil {
			return false, fmt.Errorf("encoding the old object: %w", err)
		}
	}
	if path := objects[kind].mutate; path != "" {
		response := c.ask(ctx, kind, path, raw, before)
		if !response.Allowed {
			return false, unlessNamed(response)
		}
		if raw, err = patched(raw, response); err != nil {
			return false, err
		}
		var completed map[string]any
		if err := apijson.Unmarshal(raw, &completed); err != nil {
			return false, fmt.Errorf("decoding the completed object: %w", err)
		}
		if errs := c.definitions[kind].validate(completed); len(errs) > 0 {
			return false, fmt.Errorf("the webhook made an object of it that its definition refuses: %w", errs.ToAggregate())
		}
	}
	response := c.ask(ctx, kind, objects[kind].validate, raw, before)
	if response.Allowed {
		return true, nil
	}
	return false, unlessNamed(response)
}

// unlessNamed returns an error for a refusal that names no field, or says nothing.
func unlessNamed(response admission.Response) error {
	if response.Result == nil || response.Result.Details == nil || len(response.Result.Details.Causes) == 0 {
		return fmt.Errorf("%w: %+v", errUnspoken, response.Result)
	}
	for _, cause := range response.Result.Details.Causes {
		if strings.Trim(cause.Field, ".") == "" || cause.Message == "" {
			return fmt.Errorf("%w: %+v", errUnspoken, cause)
		}
	}
	return nil
}

// FuzzObjects shows that admission answers whatever it is asked about any object, made or changed, with the path of what it refuses, and
// makes of none something that its definition refuses.
func FuzzObjects(f *testing.F) {
	for kind := range objects {
		for seed := range uint64(12) {
			f.Add(append([]byte{byte(kind)}, random.Seeded(seed, size)...))
		}
	}
	c, err := newCourt()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		kind, source := int(data[0])%len(objects), random.Bytes(data[1:])
		made, old := c.made(kind, source), c.made(kind, source)
		if made == nil {
			return
		}
		if _, err := c.judge(t.Context(), kind, made, nil); err != nil {
			t.Fatalf("a new %s: %v\n%s", objects[kind].kind, err, pretty(made))
		}
		if old == nil {
			return
		}
		if _, err := c.judge(t.Context(), kind, made, old); err != nil {
			t.Fatalf("a changed %s: %v\n%s\nwas\n%s", objects[kind].kind, err, pretty(made), pretty(old))
		}
	})
}

// TestWhatBecomesOfObjectsMadeAtRandom holds up how many of a kind reach its webhooks, and how many are admitted.
func TestWhatBecomesOfObjectsMadeAtRandom(t *testing.T) {
	c, err := newCourt()
	if err != nil {
		t.Fatal(err)
	}
	const all = 300
	for kind, one := range objects {
		asked, admitted := 0, 0
		for seed := range uint64(all) {
			made := c.made(kind, random.Bytes(random.Seeded(seed, size)))
			if made == nil {
				continue
			}
			asked++
			if passed, err := c.judge(t.Context(), kind, made, nil); passed && err == nil {
				admitted++
			}
		}
		t.Logf("%s: of %d the webhooks are asked about %d, and admit %d", one.kind, all, asked, admitted)
		if asked < all/20 {
			t.Errorf("of %d objects of kind %s only %d reach the webhooks", all, one.kind, asked)
		}
	}
}
