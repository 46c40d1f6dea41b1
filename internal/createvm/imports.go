package createvm

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/flagparams"
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
	fill  func(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error
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
	p, err := flagparams.Read(flag, text)
	if err != nil {
		return err
	}
	if err := p.Require("type"); err != nil {
		return err
	}
	all := sources()
	from, known := all[p.Text("type")]
	if !known {
		return p.Errorf("invalid volume import type %q, supported values are: %s", p.Text("type"), strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if err := p.Only(append(slices.Clone(from.params), common...)...); err != nil {
		return err
	}
	if err := p.Require(from.required...); err != nil {
		return err
	}
	spec := cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{}}
	if err := from.fill(p, &spec); err != nil {
		return err
	}
	size, err := p.Size()
	if err != nil {
		return err
	}
	if size == nil && !from.sized {
		return p.Errorf("size must be specified")
	}
	if size != nil {
		spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *size}
	}
	return b.addDataVolume(p, spec)
}

func (b *builder) addDataVolume(p *flagparams.Params, spec cdiv1.DataVolumeSpec) error {
	order, err := p.BootOrder()
	if err != nil {
		return err
	}
	name := p.Text("name")
	if name == "" {
		name = "imported-volume-" + b.Suffix()
	}
	volume := virtv1.Volume{Name: name, VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: name}}}
	if err := b.addVolume(p.Flag, volume, order); err != nil {
		return err
	}
	b.vm.Spec.DataVolumeTemplates = append(b.vm.Spec.DataVolumeTemplates, virtv1.DataVolumeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	})
	return nil
}

func blank(_ *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
	return nil
}

func gcs(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{GCS: &cdiv1.DataVolumeSourceGCS{URL: p.Text("url"), SecretRef: p.Text("secretref")}}
	return nil
}

func http(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
		URL: p.Text("url"), SecretRef: p.Text("secretref"), CertConfigMap: p.Text("certconfigmap"),
		ExtraHeaders: p.List("extraheaders"), SecretExtraHeaders: p.List("secretextraheaders"),
	}}
	return nil
}

func imageio(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{Imageio: &cdiv1.DataVolumeSourceImageIO{
		URL: p.Text("url"), DiskID: p.Text("diskid"), SecretRef: p.Text("secretref"), CertConfigMap: p.Text("certconfigmap"),
	}}
	return nil
}

func registry(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	from := &cdiv1.DataVolumeSourceRegistry{
		URL: p.Optional("url"), ImageStream: p.Optional("imagestream"),
		SecretRef: p.Optional("secretref"), CertConfigMap: p.Optional("certconfigmap"),
	}
	switch method := cdiv1.RegistryPullMethod(p.Text("pullmethod")); method {
	case "":
	case cdiv1.RegistryPullPod, cdiv1.RegistryPullNode:
		from.PullMethod = &method
	default:
		return p.Errorf("pullmethod must be set to pod or node")
	}
	if (from.URL == nil) == (from.ImageStream == nil) {
		return p.Errorf("exactly one of url or imagestream must be defined")
	}
	spec.Source = &cdiv1.DataVolumeSource{Registry: from}
	return nil
}

func s3(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{
		URL: p.Text("url"), SecretRef: p.Text("secretref"), CertConfigMap: p.Text("certconfigmap"),
	}}
	return nil
}

func vddk(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	spec.Source = &cdiv1.DataVolumeSource{VDDK: &cdiv1.DataVolumeSourceVDDK{
		URL: p.Text("url"), UUID: p.Text("uuid"), Thumbprint: p.Text("thumbprint"), SecretRef: p.Text("secretref"),
		BackingFile: p.Text("backingfile"), InitImageURL: p.Text("initimageurl"),
	}}
	return nil
}

func claim(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	namespace, name, err := p.RemoteSource(sourceClaim)
	spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}}
	return err
}

func snapshot(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	namespace, name, err := p.RemoteSource("snapshot")
	spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: name}}
	return err
}

func dataSource(p *flagparams.Params, spec *cdiv1.DataVolumeSpec) error {
	namespace, name, err := p.Source()
	spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Name: name}
	if namespace != "" {
		spec.SourceRef.Namespace = &namespace
	}
	return err
}
