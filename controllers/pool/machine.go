package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

// annotationTemplate on a VM is the digest of the template that it was made from or
// updated to, by which a pool knows without its revisions whom to update.
const annotationTemplate = names.Domain + "pool-template-digest"

// digestOf is the digest of all that pool's VMs are made from.
func digestOf(pool *poolv1.VirtualMachinePool) (string, error) {
	data, err := json.Marshal([]any{pool.Spec.VirtualMachineTemplate, pool.Spec.NameGeneration})
	if err != nil {
		return "", fmt.Errorf("encoding the template of VirtualMachinePool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// nameOf is the name of pool's VM with the ordinal.
func nameOf(pool *poolv1.VirtualMachinePool, ordinal int) string {
	return pool.Name + "-" + strconv.Itoa(ordinal)
}

// ordinalOf is the ordinal in the name of a VM of pool; false when the name is none that pool gives.
func ordinalOf(pool *poolv1.VirtualMachinePool, name string) (int, bool) {
	ordinal, err := strconv.Atoi(strings.TrimPrefix(name, pool.Name+"-"))
	return ordinal, err == nil && ordinal >= 0 && name == nameOf(pool, ordinal)
}

// checkTemplate says what keeps pool from making VMs. One that does not count would be
// made again by the next pass, and so on.
func checkTemplate(pool *poolv1.VirtualMachinePool, selector labels.Selector) error {
	template := pool.Spec.VirtualMachineTemplate
	if template == nil || template.Spec.Template == nil {
		return fmt.Errorf("VirtualMachinePool %s/%s has no virtual machine template; set spec.virtualMachineTemplate.spec.template", pool.Namespace, pool.Name)
	}
	if !selector.Matches(labels.Set(template.ObjectMeta.Labels)) {
		return fmt.Errorf("selector does not match labels: the template's are %q, the selector is %q; make spec.virtualMachineTemplate.metadata.labels match it",
			labels.Set(template.ObjectMeta.Labels), selector)
	}
	return nil
}

// machine makes the VM of pool with the ordinal, from the template that has the revision
// and the digest.
func machine(pool *poolv1.VirtualMachinePool, ordinal int, revision, digest string) *virtv1.VirtualMachine {
	template := pool.Spec.VirtualMachineTemplate
	vm := &virtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name:            nameOf(pool, ordinal),
			Namespace:       pool.Namespace,
			Labels:          with(template.ObjectMeta.Labels, virtv1.VirtualMachinePoolRevisionName, revision),
			Annotations:     with(template.ObjectMeta.Annotations, annotationTemplate, digest),
			OwnerReferences: []metav1.OwnerReference{ownedBy(pool)},
		},
		Spec: *indexed(pool, ordinal),
	}
	if holds(pool) {
		vm.Finalizers = []string{finalizer}
	}
	meta := &vm.Spec.Template.ObjectMeta
	meta.Labels = with(meta.Labels, virtv1.VirtualMachinePoolRevisionName, revision)
	return vm
}

// with returns a copy of all with one more.
func with(all map[string]string, key, value string) map[string]string {
	copied := map[string]string{key: value}
	maps.Copy(copied, all)
	copied[key] = value
	return copied
}

// ownedBy is the reference by which a VM or revision is pool's.
func ownedBy(pool *poolv1.VirtualMachinePool) metav1.OwnerReference {
	return *metav1.NewControllerRef(pool, poolv1.SchemeGroupVersion.WithKind(poolv1.VirtualMachinePoolKind))
}

// indexed is the template's spec for the VM with the ordinal: what is each VM's own has
// the ordinal in its name.
func indexed(pool *poolv1.VirtualMachinePool, ordinal int) *virtv1.VirtualMachineSpec {
	spec := pool.Spec.VirtualMachineTemplate.Spec.DeepCopy()
	suffix := "-" + strconv.Itoa(ordinal)
	own := map[string]bool{}
	for i := range spec.DataVolumeTemplates {
		own[spec.DataVolumeTemplates[i].Name] = true
		spec.DataVolumeTemplates[i].Name += suffix
	}
	if spec.Template == nil {
		return spec
	}
	for i := range spec.Template.Spec.Volumes {
		volume := &spec.Template.Spec.Volumes[i].VolumeSource
		if dv := volume.DataVolume; dv != nil && own[dv.Name] {
			dv.Name += suffix
		}
		if claim := volume.PersistentVolumeClaim; claim != nil && own[claim.ClaimName] {
			claim.ClaimName += suffix
		}
		for _, name := range references(volume, pool.Spec.NameGeneration) {
			*name += suffix
		}
	}
	return spec
}
