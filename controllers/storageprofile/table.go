package storageprofile

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"
)

//go:embed provisioners.yaml
var provisioners []byte

// knowledge is one row of the table: what is known of the volumes of some provisioners.
type knowledge struct {
	Provisioners []string `json:"provisioners"`
	// Parameters are regular expressions for the whole values of a StorageClass's parameters.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Sets are an access mode and a volume mode each, with a space between.
	Sets []string `json:"sets"`
	// CloneStrategy is empty where snapshots are best, if there are any.
	CloneStrategy cdiv1.CDICloneStrategy `json:"cloneStrategy,omitempty"`
	// SourceFormat is what DataImportCrons best keep of an import, empty for claims.
	SourceFormat cdiv1.DataImportCronSourceFormat `json:"sourceFormat,omitempty"`
	// MinimumSize is the least size of a volume, empty when there is none.
	MinimumSize string `json:"minimumSize,omitempty"`

	parameters map[string]*regexp.Regexp
	sets       []cdiv1.ClaimPropertySet
}

// table is what is known of all provisioners.
var table = sync.OnceValues(func() ([]knowledge, error) { return parse(provisioners) })

// parse reads rows, and fails for one that makes no sense.
func parse(text []byte) ([]knowledge, error) {
	var rows []knowledge
	if err := yaml.UnmarshalStrict(text, &rows); err != nil {
		return nil, fmt.Errorf("reading the table of provisioners: %w", err)
	}
	for i := range rows {
		if err := rows[i].complete(); err != nil {
			return nil, fmt.Errorf("reading the table of provisioners: row %d of %s: %w", i+1, strings.Join(rows[i].Provisioners, ", "), err)
		}
	}
	return rows, nil
}

func (k *knowledge) complete() error {
	if len(k.Provisioners) == 0 || len(k.Sets) == 0 {
		return fmt.Errorf("it names no provisioner or no set")
	}
	k.parameters = map[string]*regexp.Regexp{}
	for name, pattern := range k.Parameters {
		compiled, err := regexp.Compile(`(?i)\A(?:` + pattern + `)\z`)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
		k.parameters[name] = compiled
	}
	for _, set := range k.Sets {
		access, mode, _ := strings.Cut(set, " ")
		if !slices.Contains(accessModes, corev1.PersistentVolumeAccessMode(access)) || !slices.Contains(volumeModes, corev1.PersistentVolumeMode(mode)) {
			return fmt.Errorf("set %q is no access mode and volume mode", set)
		}
		k.sets = append(k.sets, cdiv1.ClaimPropertySet{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(access)},
			VolumeMode:  new(corev1.PersistentVolumeMode(mode)),
		})
	}
	if k.CloneStrategy != "" && !slices.Contains(cloneStrategies, k.CloneStrategy) {
		return fmt.Errorf("clone strategy %q is none of %v", k.CloneStrategy, cloneStrategies)
	}
	if k.SourceFormat != "" && !slices.Contains(sourceFormats, k.SourceFormat) {
		return fmt.Errorf("source format %q is none of %v", k.SourceFormat, sourceFormats)
	}
	if k.MinimumSize != "" {
		if _, err := resource.ParseQuantity(k.MinimumSize); err != nil {
			return fmt.Errorf("minimum size %q: %w", k.MinimumSize, err)
		}
	}
	return nil
}

// What the words in the table, in profiles and in annotations may be.
var (
	accessModes     = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod}
	volumeModes     = []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}
	cloneStrategies = []cdiv1.CDICloneStrategy{cdiv1.CloneStrategyHostAssisted, cdiv1.CloneStrategySnapshot, cdiv1.CloneStrategyCsiClone}
	sourceFormats   = []cdiv1.DataImportCronSourceFormat{cdiv1.DataImportCronSourceFormatPvc, cdiv1.DataImportCronSourceFormatSnapshot}
)

// known returns the row that fits class, nil when there is none.
func known(rows []knowledge, class *storagev1.StorageClass) *knowledge {
	for i := range rows {
		if slices.Contains(rows[i].Provisioners, class.Provisioner) && rows[i].fits(class.Parameters) {
			return &rows[i]
		}
	}
	return nil
}

func (k *knowledge) fits(parameters map[string]string) bool {
	for name, pattern := range k.parameters {
		if value, isSet := parameters[name]; !isSet || !pattern.MatchString(value) {
			return false
		}
	}
	return true
}
