package instancetype_test

import (
	"strings"
	"testing"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// says are labels that name the instance type.
func says(name string) map[string]string {
	return map[string]string{api.DefaultInstancetypeLabel: name}
}

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

func claim(namespace, name string, labels map[string]string) client.Object {
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta(namespace, name, labels)}
}

func dataVolume(labels map[string]string, phase cdiv1.DataVolumePhase, spec cdiv1.DataVolumeSpec) client.Object {
	return &cdiv1.DataVolume{ObjectMeta: meta("shop", "root", labels), Spec: spec, Status: cdiv1.DataVolumeStatus{Phase: phase}}
}

func dataSource(namespace, name string, labels map[string]string, from cdiv1.DataSourceSource) client.Object {
	return &cdiv1.DataSource{ObjectMeta: meta(namespace, name, labels), Spec: cdiv1.DataSourceSpec{Source: from}}
}

func snapshot(name string, labels map[string]string, of string) client.Object {
	return &csiv1.VolumeSnapshot{ObjectMeta: meta("golden", name, labels), Spec: csiv1.VolumeSnapshotSpec{Source: csiv1.VolumeSnapshotSource{PersistentVolumeClaimName: &of}}}
}

// ofDataVolume is a VM whose volume is a DataVolume; templates are its own.
func ofDataVolume(templates ...virtv1.DataVolumeTemplateSpec) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{ObjectMeta: meta("shop", "web", nil)}
	vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{InferFromVolume: "disk"}
	vm.Spec.DataVolumeTemplates = templates
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "other"}, {Name: "disk", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "root"}}}}
	return vm
}

func template(labels map[string]string, spec cdiv1.DataVolumeSpec) virtv1.DataVolumeTemplateSpec {
	return virtv1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "root", Labels: labels}, Spec: spec}
}

func TestWhatADiskIsMadeForIsInferred(t *testing.T) {
	fromClaim := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "image"}}}
	fromSnapshot := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: "golden", Name: "image"}}}
	fromImage := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{}}}
	fromSource := cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: new("golden"), Name: "debian"}}
	blank := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}}
	toClaim := cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "image"}}
	toSnapshot := cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "image"}}
	toSource := cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Name: "debian-13"}}
	ofClaim := ofDataVolume()
	ofClaim.Spec.Template.Spec.Volumes[1].VolumeSource = virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{}}
	ofClaim.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "root"
	ofImage := ofDataVolume()
	ofImage.Spec.Template.Spec.Volumes[1].VolumeSource = virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{}}
	const ready = cdiv1.Succeeded
	for name, c := range map[string]struct {
		vm   *virtv1.VirtualMachine
		have []client.Object
		// want is the name; nothing that there is nothing to infer, else what the error says.
		want, err string
		nothing   bool
	}{
		"a claim":                                {vm: ofClaim, have: []client.Object{claim("shop", "root", says("a"))}, want: "a"},
		"a claim that says nothing":              {vm: ofClaim, have: []client.Object{claim("shop", "root", nil)}, nothing: true},
		"a claim that is not there":              {vm: ofClaim, err: "not found"},
		"a container disk":                       {vm: ofImage, nothing: true},
		"a DataVolume":                           {vm: ofDataVolume(), have: []client.Object{dataVolume(says("a"), ready, blank)}, want: "a"},
		"a DataVolume's claim":                   {vm: ofDataVolume(), have: []client.Object{dataVolume(nil, ready, blank), claim("shop", "root", says("a"))}, want: "a"},
		"a claim whose DataVolume is gone":       {vm: ofDataVolume(), have: []client.Object{claim("shop", "root", says("a"))}, want: "a"},
		"no DataVolume, no claim":                {vm: ofDataVolume(), err: "not found"},
		"what a DataVolume is cloned from":       {vm: ofDataVolume(), have: []client.Object{dataVolume(nil, ready, fromClaim), claim("golden", "image", says("a"))}, want: "a"},
		"the nearest of several":                 {vm: ofDataVolume(), have: []client.Object{dataVolume(says("a"), ready, fromClaim), claim("golden", "image", says("b"))}, want: "a"},
		"a DataVolume whose source is gone":      {vm: ofDataVolume(), have: []client.Object{dataVolume(says("a"), ready, fromClaim)}, want: "a"},
		"a filled one whose source is gone":      {vm: ofDataVolume(), have: []client.Object{dataVolume(nil, ready, fromClaim)}, nothing: true},
		"one whose source is to come":            {vm: ofDataVolume(), have: []client.Object{dataVolume(nil, cdiv1.Pending, fromClaim)}, err: "not found"},
		"the VM's own template":                  {vm: ofDataVolume(template(says("a"), blank)), want: "a"},
		"the DataVolume of the template":         {vm: ofDataVolume(template(nil, blank)), have: []client.Object{dataVolume(says("a"), ready, blank)}, want: "a"},
		"what the template is cloned from":       {vm: ofDataVolume(template(nil, fromClaim)), have: []client.Object{claim("golden", "image", says("a"))}, want: "a"},
		"a template of nothing":                  {vm: ofDataVolume(template(nil, blank)), nothing: true},
		"a snapshot":                             {vm: ofDataVolume(template(nil, fromSnapshot)), have: []client.Object{snapshot("image", says("a"), "gone")}, want: "a"},
		"what the snapshot was taken of":         {vm: ofDataVolume(template(nil, fromSnapshot)), have: []client.Object{snapshot("image", nil, "was"), claim("golden", "was", says("a"))}, want: "a"},
		"a snapshot that says nothing":           {vm: ofDataVolume(template(nil, fromSnapshot)), have: []client.Object{snapshot("image", nil, "gone")}, nothing: true},
		"a DataSource":                           {vm: ofDataVolume(template(nil, fromSource)), have: []client.Object{dataSource("golden", "debian", says("a"), toClaim)}, want: "a"},
		"a DataSource's claim":                   {vm: ofDataVolume(template(nil, fromSource)), have: []client.Object{dataSource("golden", "debian", nil, toClaim), claim("golden", "image", says("a"))}, want: "a"},
		"a DataSource's snapshot":                {vm: ofDataVolume(template(nil, fromSource)), have: []client.Object{dataSource("golden", "debian", nil, toSnapshot), snapshot("image", says("a"), "gone")}, want: "a"},
		"a DataSource that refers to another":    {vm: ofDataVolume(template(nil, fromSource)), have: []client.Object{dataSource("golden", "debian", nil, toSource), dataSource("golden", "debian-13", says("a"), toClaim)}, want: "a"},
		"a DataSource before its first import":   {vm: ofDataVolume(template(nil, fromSource)), have: []client.Object{dataSource("golden", "debian", nil, toClaim)}, nothing: true},
		"a DataSource that is not there":         {vm: ofDataVolume(template(nil, fromSource)), err: "reading DataSource golden/debian"},
		"an image that is imported":              {vm: ofDataVolume(template(nil, fromImage)), have: []client.Object{dataVolume(nil, cdiv1.ImportInProgress, fromImage), claim("shop", "root", nil)}, err: "it is being imported"},
		"an image that has been imported":        {vm: ofDataVolume(template(nil, fromImage)), have: []client.Object{dataVolume(nil, ready, fromImage), claim("shop", "root", says("a"))}, want: "a"},
		"an imported image that says nothing":    {vm: ofDataVolume(template(nil, fromImage)), have: []client.Object{dataVolume(nil, ready, fromImage), claim("shop", "root", nil)}, nothing: true},
		"an image whose import waits for the VM": {vm: ofDataVolume(template(nil, fromImage)), have: []client.Object{dataVolume(nil, cdiv1.WaitForFirstConsumer, fromImage)}, nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := instancetype.Resolver{Reader: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(c.have...).Build()}
			got, _, err := r.References(t.Context(), c.vm)
			switch {
			case c.want != "" && (err != nil || got != instancetype.Reference{Kind: instancetype.KindClusterInstancetype, Name: c.want, InferredFrom: "disk"}):
				t.Errorf("got %+v, %v, want %s", got, err, c.want)
			case c.want == "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %+v, %v, want %q", got, err, c.err)
			}
			ignoring := c.vm.DeepCopy()
			policy := virtv1.IgnoreInferFromVolumeFailure
			ignoring.Spec.Instancetype.InferFromVolumeFailurePolicy = &policy
			got, _, err = r.References(t.Context(), ignoring)
			if ignored := err == nil && got.Name == ""; ignored != c.nothing {
				t.Errorf("with policy Ignore: %+v, %v", got, err)
			}
		})
	}
}

func TestWhatWasFoundStays(t *testing.T) {
	named := func(kind, name string) *virtv1.VirtualMachine {
		vm := ofDataVolume()
		vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: kind, Name: name}
		return vm
	}
	kept := func(kind, name, volume string) *virtv1.InstancetypeStatusRef {
		return &virtv1.InstancetypeStatusRef{Kind: kind, Name: name, InferFromVolume: volume, ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: "kept"}}
	}
	const cluster, own = instancetype.KindClusterInstancetype, instancetype.KindInstancetype
	asked := named("", "a")
	asked.Spec.Instancetype.RevisionName = "asked"
	labelled := claim("shop", "root", map[string]string{api.DefaultInstancetypeLabel: "b", api.DefaultInstancetypeKindLabel: "virtualmachineinstancetype"})
	for name, c := range map[string]struct {
		vm    *virtv1.VirtualMachine
		known *virtv1.InstancetypeStatusRef
		want  instancetype.Reference
	}{
		"named":                          {named("", "a"), nil, instancetype.Reference{Kind: cluster, Name: "a"}},
		"named in other words":           {named("virtualmachineinstancetypes", "a"), nil, instancetype.Reference{Kind: own, Name: "a"}},
		"named and kept":                 {named("", "a"), kept(cluster, "a", ""), instancetype.Reference{Kind: cluster, Name: "a", Revision: "kept"}},
		"another is named since":         {named("", "b"), kept(cluster, "a", ""), instancetype.Reference{Kind: cluster, Name: "b"}},
		"one of another kind since":      {named(own, "a"), kept(cluster, "a", ""), instancetype.Reference{Kind: own, Name: "a"}},
		"another revision is asked for":  {asked, kept(cluster, "a", ""), instancetype.Reference{Kind: cluster, Name: "a", Revision: "asked"}},
		"inferred, with its kind":        {ofDataVolume(), nil, instancetype.Reference{Kind: own, Name: "b", InferredFrom: "disk"}},
		"inferred before":                {ofDataVolume(), kept(cluster, "a", "disk"), instancetype.Reference{Kind: cluster, Name: "a", InferredFrom: "disk", Revision: "kept"}},
		"inferred from another volume":   {ofDataVolume(), kept(cluster, "a", "other"), instancetype.Reference{Kind: own, Name: "b", InferredFrom: "disk"}},
		"named as what was inferred was": {named("", "a"), kept(cluster, "a", "disk"), instancetype.Reference{Kind: cluster, Name: "a", Revision: "kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := instancetype.Resolver{Reader: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(labelled).Build()}
			c.vm.Status.InstancetypeRef = c.known
			if got, _, err := r.References(t.Context(), c.vm); err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}
