package createvm

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Types of sources that the deprecated flags name.
const (
	sourceBlank      = "blank"
	sourceClaim      = "pvc"
	sourceDataSource = "ds"
)

// common are the parameters of every source of --volume-import.
var common = []string{"type", "name", "size", "bootorder"}

// source is a type of --volume-import.
type source struct {
	// params are its parameters beside the common ones, required those that it needs.
	params, required []string
	// sized sources know their size; the others need the parameter size.
	sized bool
	fill  func(p *parameters, spec *cdiv1.DataVolumeSpec) error
}

// sources are the types of --volume-import.
func sources() map[string]source {
	web := []string{"url", "secretref", "certconfigmap"}
	return map[string]source{
		sourceBlank: {fill: blank},
		"gcs":       {params: []string{"url", "secretref"}, required: []string{"url"}, fill: gcs},
		"http":      {params: append(web, "extraheaders", "secretextraheaders"), required: []string{"url"}, fill: http},
		"imageio":   {params: append(web, "diskid"), required: []string{"url", "diskid"}, fill: imageio},
		"registry":  {params: append(web, "imagestream", "pullmethod"), fill: registry},
		"s3":        {params: web, required: []string{"url"}, fill: s3},
		"vddk": {
			params:   []string{"url", "secretref", "backingfile", "initimageurl", "thumbprint", "uuid"},
			required: []string{"url", "uuid", "thumbprint", "secretref", "backingfile"}, fill: vddk,
		},
		sourceClaim:      {params: []string{"src"}, sized: true, fill: claim},
		"snapshot":       {params: []string{"src"}, sized: true, fill: snapshot},
		sourceDataSource: {params: []string{"src"}, sized: true, fill: dataSource},
	}
}

// importUsage lists the types and their parameters.
func importUsage() string {
	var b strings.Builder
	all := sources()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		takes := strings.Join(all[name].params, ", ")
		if takes == "" {
			takes = "nothing"
		}
		b.WriteString("\n  " + name + ": " + takes)
	}
	return b.String()
}

// imports adds a DataVolume for each source; those of the deprecated flags come first.
func (b *builder) imports() error {
	for _, group := range []struct {
		flag, kind string
		texts      []string
	}{
		{flagDataSource, sourceDataSource, b.DataSources},
		{flagCloneClaim, sourceClaim, b.ClonedClaims},
		{flagBlank, sourceBlank, b.Blanks},
		{flagImport, "", b.Imports},
	} {
		for _, text := range group.texts {
			if group.kind != "" && text != "" {
				text = "type:" + group.kind + "," + text
			}
			if err := b.importVolume(group.flag, text); err != nil {
				return err
			}
		}
		if group.kind != "" && len(group.texts) > 0 {
			b.warnings = append(b.warnings, "Flag --"+group.flag+" has been deprecated, use flag --volume-import instead")
		}
	}
	return nil
}

func (b *builder) importVolume(flag, text string) error {
	p, err := read(flag, text)
	if err != nil {
		return err
	}
	if err := p.require("type"); err != nil {
		return err
	}
	all := sources()
	from, known := all[p.text("type")]
	if !known {
		return p.errorf("invalid volume import type %q, supported values are: %s", p.text("type"), strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if err := p.onlyKnown(append(slices.Clone(from.params), common...)); err != nil {
		return err
	}
	if err := p.require(from.required...); err != nil {
		return err
	}
	spec := cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{}}
	if err := from.fill(p, &spec); err != nil {
		return err
	}
	size, err := p.size()
	if err != nil {
		return err
	}
	if size == nil && !from.sized {
		return p.errorf("size must be specified")
	}
	if size != nil {
		spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *size}
	}
	return b.addDataVolume(p, spec)
}

func (b *builder) addDataVolume(p *parameters, spec cdiv1.DataVolumeSpec) error {
	order, err := p.bootOrder()
	if err != nil {
		return err
	}
	name := p.text("name")
	if name == "" {
		name = "imported-volume-" + b.Suffix()
	}
	volume := virtv1.Volume{Name: name, VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: name}}}
	if err := b.addVolume(p.flag, volume, order); err != nil {
		return err
	}
	b.vm.Spec.DataVolumeTemplates = append(b.vm.Spec.DataVolumeTemplates, virtv1.DataVolumeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	})
	return nil
}

func blank(_ *parameters, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
	return nil
}

func gcs(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{GCS: &cdiv1.DataVolumeSourceGCS{URL: p.text("url"), SecretRef: p.text("secretref")}}
	return nil
}

func http(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
		URL: p.text("url"), SecretRef: p.text("secretref"), CertConfigMap: p.text("certconfigmap"),
		ExtraHeaders: p.list("extraheaders"), SecretExtraHeaders: p.list("secretextraheaders"),
	}}
	return nil
}

func imageio(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{Imageio: &cdiv1.DataVolumeSourceImageIO{
		URL: p.text("url"), DiskID: p.text("diskid"), SecretRef: p.text("secretref"), CertConfigMap: p.text("certconfigmap"),
	}}
	return nil
}

func registry(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	from := &cdiv1.DataVolumeSourceRegistry{
		URL: p.optional("url"), ImageStream: p.optional("imagestream"),
		SecretRef: p.optional("secretref"), CertConfigMap: p.optional("certconfigmap"),
	}
	switch method := cdiv1.RegistryPullMethod(p.text("pullmethod")); method {
	case "":
	case cdiv1.RegistryPullPod, cdiv1.RegistryPullNode:
		from.PullMethod = &method
	default:
		return p.errorf("pullmethod must be set to pod or node")
	}
	if (from.URL == nil) == (from.ImageStream == nil) {
		return p.errorf("exactly one of url or imagestream must be defined")
	}
	spec.Source = &cdiv1.DataVolumeSource{Registry: from}
	return nil
}

func s3(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{
		URL: p.text("url"), SecretRef: p.text("secretref"), CertConfigMap: p.text("certconfigmap"),
	}}
	return nil
}

func vddk(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{VDDK: &cdiv1.DataVolumeSourceVDDK{
		URL: p.text("url"), UUID: p.text("uuid"), Thumbprint: p.text("thumbprint"), SecretRef: p.text("secretref"),
		BackingFile: p.text("backingfile"), InitImageURL: p.text("initimageurl"),
	}}
	return nil
}

func claim(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	namespace, name, err := p.remoteSource(sourceClaim)
	spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
	return err
}

func snapshot(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	namespace, name, err := p.remoteSource("snapshot")
	spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: name}}
	return err
}

func dataSource(p *parameters, spec *cdiv1.DataVolumeSpec) error {
	namespace, name, err := p.source()
	spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Name: name}
	if namespace != "" {
		spec.SourceRef.Namespace = &namespace
	}
	return err
}

// remoteSource is source for what must be named with its namespace.
func (p *parameters) remoteSource(kind string) (namespace, name string, err error) {
	if namespace, name, err = p.source(); err == nil && namespace == "" {
		err = p.errorf("namespace of %s %q must be specified; write src:NAMESPACE/%s", kind, name, name)
	}
	return namespace, name, err
}
