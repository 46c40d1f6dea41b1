package v1beta1

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/conversion"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// ConvertTo writes h in the stored version into hub, which is a v1 HyperConverged.
func (h *HyperConverged) ConvertTo(hub conversion.Hub) error {
	out, ok := hub.(*hcov1.HyperConverged)
	if !ok {
		return fmt.Errorf("converting HyperConverged %s: %T is not a v1 HyperConverged", h.Name, hub)
	}
	in := h.DeepCopy()
	out.ObjectMeta = in.ObjectMeta
	out.Status = in.Status
	out.Spec = hcov1.HyperConvergedSpec{
		Deployment: hcov1.Deployment{
			NodePlacements:     hcov1.NodePlacements{Infra: in.Spec.Infra.NodePlacement, Workload: in.Spec.Workloads.NodePlacement},
			UninstallStrategy:  in.Spec.UninstallStrategy,
			LogVerbosityConfig: in.Spec.LogVerbosityConfig,
		},
		Virtualization: hcov1.Virtualization{
			WorkloadUpdateStrategy: in.Spec.WorkloadUpdateStrategy, VirtualMachineOptions: optionsOf(&in.Spec),
			RoleAggregationStrategy:            in.Spec.RoleAggregationStrategy,
			AutoCPULimitNamespaceLabelSelector: in.Spec.ResourceRequirements.AutoCPULimitNamespaceLabelSelector,
		},
		WorkloadSources: hcov1.WorkloadSources{
			TektonNamespaces:     in.Spec.TektonNamespaces,
			TektonTasksNamespace: in.Spec.TektonTasksNamespace, TektonPipelinesNamespace: in.Spec.TektonPipelinesNamespace,
			CommonInstancetypesDeployment: in.Spec.CommonInstancetypesDeployment,
			InstancetypeConfig:            in.Spec.InstancetypeConfig,
			EnableCommonBootImageImport:   in.Spec.EnableCommonBootImageImport,
			CommonBootImageNamespace:      in.Spec.CommonBootImageNamespace,
			DataImportCronTemplates:       in.Spec.DataImportCronTemplates,
		},
		Storage: hcov1.Storage{
			FilesystemOverhead: in.Spec.FilesystemOverhead, ScratchSpaceStorageClass: in.Spec.ScratchSpaceStorageClass,
			StorageImport: in.Spec.StorageImport, WorkloadResourceRequirements: in.Spec.ResourceRequirements.StorageWorkloads,
		},
		Security: hcov1.Security{CertConfig: in.Spec.CertConfig, TLSSecurityProfile: in.Spec.TLSSecurityProfile},
	}
	return nil
}

// ConvertFrom reads h from hub, which is a v1 HyperConverged.
func (h *HyperConverged) ConvertFrom(hub conversion.Hub) error {
	stored, ok := hub.(*hcov1.HyperConverged)
	if !ok {
		return fmt.Errorf("converting HyperConverged: %T is not a v1 HyperConverged", hub)
	}
	in := stored.DeepCopy()
	h.ObjectMeta = in.ObjectMeta
	h.Status = in.Status
	h.Spec = HyperConvergedSpec{
		Infra:              HyperConvergedConfig{NodePlacement: in.Spec.Deployment.NodePlacements.Infra},
		Workloads:          HyperConvergedConfig{NodePlacement: in.Spec.Deployment.NodePlacements.Workload},
		UninstallStrategy:  in.Spec.Deployment.UninstallStrategy,
		LogVerbosityConfig: in.Spec.Deployment.LogVerbosityConfig,

		WorkloadUpdateStrategy: in.Spec.Virtualization.WorkloadUpdateStrategy,

		TektonNamespaces: in.Spec.WorkloadSources.TektonNamespaces,

		TektonTasksNamespace:     in.Spec.WorkloadSources.TektonTasksNamespace,
		TektonPipelinesNamespace: in.Spec.WorkloadSources.TektonPipelinesNamespace,

		CommonInstancetypesDeployment: in.Spec.WorkloadSources.CommonInstancetypesDeployment,
		InstancetypeConfig:            in.Spec.WorkloadSources.InstancetypeConfig,
		RoleAggregationStrategy:       in.Spec.Virtualization.RoleAggregationStrategy,

		EnableCommonBootImageImport: in.Spec.WorkloadSources.EnableCommonBootImageImport,
		CommonBootImageNamespace:    in.Spec.WorkloadSources.CommonBootImageNamespace,
		DataImportCronTemplates:     in.Spec.WorkloadSources.DataImportCronTemplates,

		FilesystemOverhead:       in.Spec.Storage.FilesystemOverhead,
		ScratchSpaceStorageClass: in.Spec.Storage.ScratchSpaceStorageClass,
		StorageImport:            in.Spec.Storage.StorageImport,
		ResourceRequirements: ResourceRequirements{
			StorageWorkloads:                   in.Spec.Storage.WorkloadResourceRequirements,
			AutoCPULimitNamespaceLabelSelector: in.Spec.Virtualization.AutoCPULimitNamespaceLabelSelector,
		},

		CertConfig:         in.Spec.Security.CertConfig,
		TLSSecurityProfile: in.Spec.Security.TLSSecurityProfile,
	}
	if options := in.Spec.Virtualization.VirtualMachineOptions; options != nil {
		h.Spec.DefaultCPUModel, h.Spec.DefaultRuntimeClass = options.DefaultCPUModel, options.DefaultRuntimeClass
		defaultsAlone := options.MachineSwitches == (hcov1.MachineSwitches{}) && (options.DefaultCPUModel != nil || options.DefaultRuntimeClass != nil)
		if !defaultsAlone {
			h.Spec.VirtualMachineOptions = &options.MachineSwitches
		}
	}
	return nil
}

// optionsOf are the options of v1, where the defaults of virtual machines are among them.
func optionsOf(spec *HyperConvergedSpec) *hcov1.VirtualMachineOptions {
	if spec.VirtualMachineOptions == nil && spec.DefaultCPUModel == nil && spec.DefaultRuntimeClass == nil {
		return nil
	}
	options := &hcov1.VirtualMachineOptions{DefaultCPUModel: spec.DefaultCPUModel, DefaultRuntimeClass: spec.DefaultRuntimeClass}
	if spec.VirtualMachineOptions != nil {
		options.MachineSwitches = *spec.VirtualMachineOptions
	}
	return options
}
