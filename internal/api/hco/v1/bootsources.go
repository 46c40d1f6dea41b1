package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// CommonBootImageNamespace is where boot images are imported unless the object says otherwise. The
// name is the field's.
const CommonBootImageNamespace = "kubevirt-os-images"

// AnnotationTemplateEnable on a DataImportCronTemplate says whether it counts: "true", as when it is
// left out, or "false".
const AnnotationTemplateEnable = "dataimportcrontemplate.kubevirt.io/enable"

// ConditionDeployed is in the status of a template that has no DataImportCron, and says why. It is
// not there otherwise.
const ConditionDeployed = "Deployed"

// TemplateMetadata is what a DataImportCron gets of metadata.
type TemplateMetadata struct {
	// Name of the DataImportCron. That of a common boot image changes this one.
	Name string `json:"name"`

	// Namespace of the DataImportCron; kubevirt-os-images when left out.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Labels of the DataImportCron. Those that name a default instance type or preference are on its
	// DataSource, too.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the DataImportCron.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DataImportCronTemplate is a DataImportCron to be made.
type DataImportCronTemplate struct {
	// Metadata of the DataImportCron.
	TemplateMetadata `json:"metadata"`

	// Spec of the DataImportCron. It may be left out where annotation
	// dataimportcrontemplate.kubevirt.io/enable is "false".
	// +optional
	Spec *cdiv1.DataImportCronSpec `json:"spec,omitempty"`
}

// DataImportCronTemplateStatus is a boot source as it is deployed.
type DataImportCronTemplateStatus struct {
	DataImportCronTemplate `json:",inline"`

	// Status says where the boot source comes from.
	// +optional
	Status DataImportCronStatus `json:"status,omitempty"`
}

// DataImportCronStatus says where a boot source comes from.
type DataImportCronStatus struct {
	// Conditions: Deployed, False while it has no DataImportCron.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// CommonTemplate is true for one of the common boot images.
	// +optional
	CommonTemplate bool `json:"commonTemplate,omitempty"`

	// Modified is true for a common one that spec.workloadSources.dataImportCronTemplates changes.
	// +optional
	Modified bool `json:"modified,omitempty"`
}
