package subresource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	admitvmi "github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/supported"
)

// volumeRequest reads what a client asks of volumes; dryRun is what it said of that.
type volumeRequest func(*http.Request) (request hotplug.Request, dryRun []string, err error)

// decodeRequired reads options that a client must send.
func decodeRequired(r *http.Request, options any) error {
	err := yaml.NewYAMLOrJSONDecoder(io.LimitReader(r.Body, maxBody), 1024).Decode(options)
	if errors.Is(err, io.EOF) {
		return badRequest("Request with no body, a new name is expected as the request body")
	}
	if err != nil {
		return badRequest(unreadableBody, err)
	}
	return nil
}

func readAddVolume(r *http.Request) (hotplug.Request, []string, error) {
	options := &virtv1.AddVolumeOptions{}
	if err := decodeRequired(r, options); err != nil {
		return hotplug.Request{}, nil, err
	}
	source := options.VolumeSource
	switch {
	case options.Name == "":
		return hotplug.Request{}, nil, badRequest("AddVolumeOptions requires name to be set")
	case options.Disk == nil:
		return hotplug.Request{}, nil, badRequest("AddVolumeOptions requires disk to not be nil")
	case source == nil:
		return hotplug.Request{}, nil, badRequest("AddVolumeOptions requires VolumeSource to not be nil")
	case (source.DataVolume == nil) == (source.PersistentVolumeClaim == nil):
		return hotplug.Request{}, nil, badRequest("AddVolumeOptions requires VolumeSource to have exactly one of dataVolume and persistentVolumeClaim")
	}
	options.Disk.Name = options.Name
	if source.DataVolume != nil {
		source.DataVolume.Hotpluggable = true
	} else {
		source.PersistentVolumeClaim.Hotpluggable = true
	}
	if err := hotplug.CheckDisk(options.Name, options.Disk); err != nil {
		return hotplug.Request{}, nil, badRequest("%v", err)
	}
	return hotplug.Request{Add: options}, options.DryRun, checkDryRun(options.DryRun)
}

func readRemoveVolume(r *http.Request) (hotplug.Request, []string, error) {
	options := &virtv1.RemoveVolumeOptions{}
	if err := decodeRequired(r, options); err != nil {
		return hotplug.Request{}, nil, err
	}
	if options.Name == "" {
		return hotplug.Request{}, nil, badRequest("RemoveVolumeOptions requires name to be set")
	}
	return hotplug.Request{Remove: options}, options.DryRun, checkDryRun(options.DryRun)
}

func checkDryRun(directives []string) error {
	for _, directive := range directives {
		if directive != metav1.DryRunAll {
			return badRequest("invalid dryRun directive %q: use %s", directive, metav1.DryRunAll)
		}
	}
	return nil
}

// changeMachineVolumes changes the volumes of a VM: those of its running instance follow,
// and stay changed at the next start.
func changeMachineVolumes(read volumeRequest) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		request, dryRun, err := read(r)
		if err != nil {
			return err
		}
		vm, err := s.virtualMachine(r.Context(), key(r))
		if err != nil {
			return err
		}
		if err := leaving(vm); err != nil {
			return err
		}
		if vm.Spec.Template == nil {
			return conflict(kindVM, vm.Name, "missing virtual machine template.")
		}
		before := &vm.Spec.Template.Spec
		after := before.DeepCopy()
		if err := request.Apply(after); err != nil {
			return conflict(kindVM, vm.Name, "%v", err)
		}
		return accepted(w, s.patchSpec(r.Context(), vm, dryRun, volumesPatch("/spec/template/spec", before, after)))
	}
}

// changeInstanceVolumes changes the volumes of a running VMI, until it ends. Its admission
// lets virt-api pass, so what comes of it is checked here.
func changeInstanceVolumes(read volumeRequest) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		request, dryRun, err := read(r)
		if err != nil {
			return err
		}
		vmi, err := s.instance(r.Context(), key(r))
		if err != nil {
			return err
		}
		if !vmi.IsRunning() {
			return conflicting(vmi, vmiNotRunning)
		}
		after := vmi.Spec.DeepCopy()
		if err := request.Apply(after); err != nil {
			return conflict(kindVMI, vmi.Name, "%v", err)
		}
		if err := checkChanged(vmi, after); err != nil {
			return err
		}
		p := append(volumesPatch("/spec", &vmi.Spec, after), ephemeralPatch(vmi, request)...)
		return accepted(w, s.patchInstance(r.Context(), vmi, dryRun, p))
	}
}

// checkChanged refuses a spec that admission would refuse of a new VMI.
func checkChanged(vmi *virtv1.VirtualMachineInstance, spec *virtv1.VirtualMachineInstanceSpec) error {
	changed := &virtv1.VirtualMachineInstance{Spec: *spec}
	errs := supported.OfObject(supported.VirtualMachineInstance, changed)
	errs = append(errs, admitvmi.Validate(spec, field.NewPath("spec"))...)
	if len(errs) > 0 {
		return refuse(apierrors.NewInvalid(virtv1.VirtualMachineInstanceGroupVersionKind.GroupKind(), vmi.Name, errs))
	}
	return nil
}

// volumesPatch changes the volumes and disks of the spec at path.
func volumesPatch(path string, before, after *virtv1.VirtualMachineInstanceSpec) patch {
	p := patch{}
	if len(before.Volumes) > 0 {
		p = p.test(path+"/volumes", before.Volumes)
	}
	if len(before.Domain.Devices.Disks) > 0 {
		p = p.test(path+"/domain/devices/disks", before.Domain.Devices.Disks)
	}
	return p.add(path+"/volumes", after.Volumes).add(path+"/domain/devices/disks", after.Domain.Devices.Disks)
}

// ephemeralPatch notes on a VM's instance which volumes are not its VM's.
func ephemeralPatch(vmi *virtv1.VirtualMachineInstance, request hotplug.Request) patch {
	before := hotplug.Ephemeral(vmi)
	after := slices.Clone(before)
	if request.Add != nil && metav1.GetControllerOf(vmi) != nil {
		after = append(after, request.Add.Name)
	} else if request.Remove != nil {
		after = slices.DeleteFunc(after, func(name string) bool { return name == request.Remove.Name })
	}
	if len(after) == len(before) {
		return nil
	}
	annotations := maps.Clone(vmi.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[hotplug.AnnotationEphemeral] = strings.Join(after, ",")
	if len(after) == 0 {
		delete(annotations, hotplug.AnnotationEphemeral)
	}
	p := patch{}
	if len(vmi.Annotations) > 0 {
		p = p.test("/metadata/annotations", vmi.Annotations)
	}
	return p.add("/metadata/annotations", annotations)
}

func (s *Server) patchInstance(ctx context.Context, vmi *virtv1.VirtualMachineInstance, dryRun []string, p patch) error {
	content, err := p.encode()
	if err != nil {
		return fmt.Errorf("changing the volumes of %s: %w", vmi.Name, err)
	}
	options := &client.PatchOptions{DryRun: dryRun, FieldManager: names.ManagerAPI}
	return patched(kindVMI, vmi.Name, s.client.Patch(ctx, vmi, client.RawPatch(types.JSONPatchType, content), options))
}
