package declare

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Instancetypes returns the YAML files of the instance types, one for each series, by name.
func Instancetypes() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, s := range allSeries() {
		objects, err := s.objects()
		if err != nil {
			return nil, fmt.Errorf("declaring series %s: %w", s.name, err)
		}
		if files[s.name+".yaml"], err = file(objects); err != nil {
			return nil, fmt.Errorf("declaring series %s: %w", s.name, err)
		}
	}
	return files, nil
}

func (s series) objects() ([]object, error) {
	var objects []object
	for _, of := range s.sizes {
		for i, page := range s.pageSizes() {
			name := of.name
			if i > 0 {
				name += strings.ToLower(page)
			}
			o, err := s.object(name, of, page)
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// pageSizes are those of the huge pages; one that is empty for none.
func (s series) pageSizes() []string {
	if len(s.pages) == 0 {
		return []string{""}
	}
	return s.pages
}

func (s series) object(name string, of size, page string) (object, error) {
	memory, err := resource.ParseQuantity(of.memory)
	if err != nil {
		return nil, fmt.Errorf("the memory of size %s: %w", name, err)
	}
	annotations := map[string]string{domain + "displayName": s.display, domain + "description": s.description}
	return newObject(kindInstancetype, s.name+"."+name, s.labels(name, of, page), annotations, s.spec(of.cpus, memory, page))
}

func (s series) labels(name string, of size, page string) map[string]string {
	labels := map[string]string{
		labelVendor: vendor, labelSetVersion: Version, domain + "version": s.name[len(s.name)-1:],
		domain + "class": s.class, domain + "icon-pf": s.icon, domain + "size": name,
		domain + "cpu": strconv.FormatUint(uint64(of.cpus), 10), domain + "memory": of.memory,
	}
	if page != "" {
		labels[domain+"hugepages"] = page
	}
	for label, holds := range map[string]bool{
		"dedicatedCPUPlacement": s.dedicated, "isolateEmulatorThread": s.dedicated, "numa": s.numa, "realtime": s.realtime,
	} {
		if holds {
			labels[domain+label] = "true"
		}
	}
	return labels
}

func (s series) spec(cpus uint32, memory resource.Quantity, page string) v1beta1.VirtualMachineInstancetypeSpec {
	spec := v1beta1.VirtualMachineInstancetypeSpec{
		CPU:    v1beta1.CPUInstancetype{Guest: cpus},
		Memory: v1beta1.MemoryInstancetype{Guest: memory, OvercommitPercent: s.overcommit},
	}
	if s.dedicated {
		spec.CPU.DedicatedCPUPlacement, spec.CPU.IsolateEmulatorThread = new(true), new(true)
	}
	if s.numa {
		spec.CPU.NUMA = &virtv1.NUMA{GuestMappingPassthrough: &virtv1.NUMAGuestMappingPassthrough{}}
	}
	if s.realtime {
		spec.CPU.Realtime = &virtv1.Realtime{}
	}
	if s.fixedCPUs {
		spec.CPU.MaxSockets = &cpus
	}
	if page != "" {
		spec.Memory.Hugepages = &virtv1.Hugepages{PageSize: page}
	}
	if s.ioThreads {
		spec.IOThreadsPolicy = new(virtv1.IOThreadsPolicyAuto)
	}
	if s.unbalanced {
		spec.Annotations = map[string]string{
			"cpu-load-balancing.crio.io": "disable", "cpu-quota.crio.io": "disable", "irq-load-balancing.crio.io": "disable",
		}
	}
	return spec
}
