package createvm

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype"

	"github.com/slipway-vm/slipway/internal/flagparams"
)

// suffixSize is the length of the random end of a name.
const suffixSize = 5

// builder is a VirtualMachine that is being built.
type builder struct {
	*Options
	vm         *virtv1.VirtualMachine
	bootOrders map[uint]string
	warnings   []string
	// cloudInitBy is the kind of cloud-init data that an access credential asked for.
	cloudInitBy string
}

// VM builds the VirtualMachine that the flags ask for. The warnings are for the user.
func (o *Options) VM() (vm *virtv1.VirtualMachine, warnings []string, err error) {
	if err := o.checkExclusive(); err != nil {
		return nil, nil, err
	}
	values := *o // access credentials change some
	if values.Suffix == nil {
		values.Suffix = func() string { return rand.String(suffixSize) }
	}
	if values.ReadFile == nil {
		values.ReadFile = os.ReadFile
	}
	b := &builder{Options: &values, bootOrders: map[uint]string{}}
	// The order decides: volumes boot in the order in which they are added, access credentials
	// may ask for cloud-init data, and inference looks at the volumes.
	steps := []func() error{
		b.base, b.instancetype, b.preference,
		b.containerDisks, b.claims, b.imports, b.sysprep,
		b.accessCredentials, b.cloudInit,
		b.inferInstancetype, b.inferPreference,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	return b.vm, b.warnings, nil
}

func (b *builder) spec() *virtv1.VirtualMachineInstanceSpec { return &b.vm.Spec.Template.Spec }

func (b *builder) base() error {
	memory, err := resource.ParseQuantity(b.Memory)
	if err != nil {
		return flagparams.Errorf(flagMemory, "%w; write for example 1Gi", err)
	}
	strategy, err := b.strategy()
	if err != nil {
		return err
	}
	name := b.Name
	if name == "" {
		name = "vm-" + b.Suffix()
	}
	grace := b.TerminationGracePeriod
	b.vm = &virtv1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: virtv1.SchemeGroupVersion.String(), Kind: virtv1.VirtualMachineGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: virtv1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &virtv1.VirtualMachineInstanceTemplateSpec{Spec: virtv1.VirtualMachineInstanceSpec{
				TerminationGracePeriodSeconds: &grace,
				Domain:                        virtv1.DomainSpec{Memory: &virtv1.Memory{Guest: &memory}},
			}},
		},
	}
	return nil
}

func (b *builder) strategy() (virtv1.VirtualMachineRunStrategy, error) {
	known := []virtv1.VirtualMachineRunStrategy{
		virtv1.RunStrategyAlways, virtv1.RunStrategyManual, virtv1.RunStrategyHalted, virtv1.RunStrategyOnce, virtv1.RunStrategyRerunOnFailure,
	}
	names := make([]string, len(known))
	for i, strategy := range known {
		if strings.EqualFold(string(strategy), b.RunStrategy) {
			return strategy, nil
		}
		names[i] = string(strategy)
	}
	return "", flagparams.Errorf(flagRunStrategy, "invalid run strategy %q, supported values are: %s", b.RunStrategy, strings.Join(names, ", "))
}

// kindAndName reads kind/name, or a name whose kind the API server fills in.
func kindAndName(flag, what, text string, kinds ...string) (kind, name string, err error) {
	kind, name, err = flagparams.Prefixed(text)
	if err != nil {
		return "", "", flagparams.Errorf(flag, "%w", err)
	}
	kind = strings.ToLower(kind)
	if kind != "" && !slices.Contains(kinds, kind) {
		return "", "", flagparams.Errorf(flag, "invalid %s kind %q, supported values are: %s", what, kind, strings.Join(kinds, ", "))
	}
	return kind, name, nil
}

func (b *builder) instancetype() error {
	if !b.changed(flagInstancetype) {
		return nil
	}
	kind, name, err := kindAndName(flagInstancetype, "instancetype", b.Instancetype, instancetype.SingularResourceName, instancetype.ClusterSingularResourceName)
	if err != nil {
		return err
	}
	b.spec().Domain.Memory = nil // the instance type says it
	b.vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Name: name, Kind: kind}
	return nil
}

func (b *builder) preference() error {
	if !b.changed(flagPreference) {
		return nil
	}
	kind, name, err := kindAndName(flagPreference, "preference", b.Preference, instancetype.SingularPreferenceResourceName, instancetype.ClusterSingularPreferenceResourceName)
	if err != nil {
		return err
	}
	b.vm.Spec.Preference = &virtv1.PreferenceMatcher{Name: name, Kind: kind}
	return nil
}

// inferInstancetype takes the instance type from a volume. Unless it was asked for, failing
// to do so is no error, and the memory stays for that case.
func (b *builder) inferInstancetype() error {
	if !b.InferInstancetype && b.InferInstancetypeFrom == "" || b.changed(flagInstancetype, flagMemory) {
		return nil
	}
	asked := b.changed(flagInferType, flagInferTypeFrom)
	volume, err := b.inferable(b.InferInstancetypeFrom)
	if err != nil {
		return onlyIf(asked, err)
	}
	b.vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{InferFromVolume: volume}
	if asked {
		b.spec().Domain.Memory = nil
		return nil
	}
	ignore := virtv1.IgnoreInferFromVolumeFailure
	b.vm.Spec.Instancetype.InferFromVolumeFailurePolicy = &ignore
	return nil
}

func (b *builder) inferPreference() error {
	if !b.InferPreference && b.InferPreferenceFrom == "" || b.changed(flagPreference) {
		return nil
	}
	asked := b.changed(flagInferPref, flagInferPrefFrom)
	volume, err := b.inferable(b.InferPreferenceFrom)
	if err != nil {
		return onlyIf(asked, err)
	}
	b.vm.Spec.Preference = &virtv1.PreferenceMatcher{InferFromVolume: volume}
	if !asked {
		ignore := virtv1.IgnoreInferFromVolumeFailure
		b.vm.Spec.Preference.InferFromVolumeFailurePolicy = &ignore
	}
	return nil
}

func onlyIf(asked bool, err error) error {
	if asked {
		return err
	}
	return nil
}

// inferable returns the volume of that name, or the one that boots first, when it can carry
// the defaults of an instance type and a preference.
func (b *builder) inferable(name string) (string, error) {
	volumes := b.spec().Volumes
	if len(volumes) == 0 {
		return "", errors.New("at least one volume is needed to infer an instance type or preference")
	}
	if name == "" {
		name = volumes[0].Name
		if len(b.bootOrders) > 0 {
			name = b.bootOrders[slices.Min(slices.Collect(maps.Keys(b.bootOrders)))]
		}
	}
	i := slices.IndexFunc(volumes, func(v virtv1.Volume) bool { return v.Name == name })
	switch {
	case i < 0:
		return "", errors.New("there is no volume with name \"" + name + "\"")
	case volumes[i].PersistentVolumeClaim != nil:
		return name, nil
	case volumes[i].DataVolume == nil:
		return "", errors.New("inference of instancetype or preference works only with datasources, datavolumes or pvcs")
	}
	for _, t := range b.vm.Spec.DataVolumeTemplates {
		s := t.Spec.Source
		if t.Name == volumes[i].DataVolume.Name && t.Spec.SourceRef == nil && s.PVC == nil && s.Registry == nil && s.Snapshot == nil {
			return "", errors.New("volume \"" + name + "\" carries no instance type or preference: its source is no DataSource, PVC, snapshot or registry")
		}
	}
	return name, nil
}

// addVolume adds a volume whose name is still free, with a disk if it has a place in the boot order.
func (b *builder) addVolume(flag string, volume virtv1.Volume, bootOrder *uint) error {
	if errs := validation.IsDNS1123Label(volume.Name); len(errs) > 0 {
		return flagparams.Errorf(flag, "invalid name %q: %s", volume.Name, strings.Join(errs, ","))
	}
	spec := b.spec()
	if slices.ContainsFunc(spec.Volumes, func(v virtv1.Volume) bool { return v.Name == volume.Name }) {
		return flagparams.Errorf(flag, "there is already a volume with name %q", volume.Name)
	}
	spec.Volumes = append(spec.Volumes, volume)
	if bootOrder == nil {
		return nil
	}
	if _, taken := b.bootOrders[*bootOrder]; taken {
		return flagparams.Errorf(flag, "bootorder %d was specified multiple times", *bootOrder)
	}
	b.bootOrders[*bootOrder] = volume.Name
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: volume.Name, BootOrder: bootOrder})
	return nil
}
