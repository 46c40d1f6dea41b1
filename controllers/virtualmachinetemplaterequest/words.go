package virtualmachinetemplaterequest

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

// The parameter of every template that is made: the name of the new VM.
const (
	parameterName = "NAME"
	newName       = "${" + parameterName + "}"
)

// retry is the time between tries of what no event tells of.
const retry = 5 * time.Second

// kindMachine is what templates are made of.
var kindMachine = virtv1.VirtualMachineGroupVersionKind.Kind

var (
	kindRequest  = vmtemplatev1beta1.GroupVersion.WithKind(vmtemplatev1beta1.KindRequest)
	kindTemplate = vmtemplatev1beta1.GroupVersion.WithKind("VirtualMachineTemplate")
)

// snapshotName is the name of the snapshot that the request of a uid takes.
func snapshotName(request types.UID) string { return "tmp-template-" + string(request) }

// templateName is the name of the template: the one asked for, or the request's.
func templateName(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) string {
	if request.Spec.TemplateName != "" {
		return request.Spec.TemplateName
	}
	return request.Name
}

// diskName is the name of the DataVolume with the copy of a volume's disk, which no earlier request has used.
func diskName(request *vmtemplatev1beta1.VirtualMachineTemplateRequest, volume string) string {
	digits, _, _ := strings.Cut(string(request.UID), "-")
	if name := fmt.Sprintf("%s-%s-%s", templateName(request), volume, digits); len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	return fmt.Sprintf("template-%s-%s", volume, digits)
}
