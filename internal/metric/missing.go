package metric

// Absent is what the field tells and Slipway does not.
type Absent struct {
	Name string
	// Why is a clause for people.
	Why string
}

const (
	noMigration = "live migration is not built yet"
	noExporter  = "pods of imports and clones that fail are made anew, not restarted; the DataVolume's conditions and events tell of it"
)

// Missing lists what Slipway does not tell, by the field's names.
var Missing = []Absent{
	{"kubevirt_vmi_migration_data_bytes_total", noMigration},
	{"kubevirt_vmi_migration_data_processed_bytes", noMigration},
	{"kubevirt_vmi_migration_data_remaining_bytes", noMigration},
	{"kubevirt_vmi_migration_data_total_bytes", noMigration},
	{"kubevirt_vmi_migration_dirty_memory_rate_bytes", noMigration},
	{"kubevirt_vmi_migration_end_time_seconds", noMigration},
	{"kubevirt_vmi_migration_failed", noMigration},
	{"kubevirt_vmi_migration_memory_transfer_rate_bytes", noMigration},
	{"kubevirt_vmi_migration_phase_transition_time_from_creation_seconds", noMigration},
	{"kubevirt_vmi_migration_start_time_seconds", noMigration},
	{"kubevirt_vmi_migration_succeeded", noMigration},
	{"kubevirt_vmi_migrations_in_pending_phase", noMigration},
	{"kubevirt_vmi_migrations_in_running_phase", noMigration},
	{"kubevirt_vmi_migrations_in_scheduling_phase", noMigration},
	{"kubevirt_vmi_migrations_in_unset_phase", noMigration},
	{"kubevirt_vmi_dirty_rate_bytes_per_second", "measuring it slows the guest down"},
	{"kubevirt_vmi_gpu_info", "GPUs are not given to guests yet"},
	{"kubevirt_vmi_guest_device_driver_date_seconds", "no agent is asked for its drivers yet"},
	{"kubevirt_vm_created_by_pod_total", "deprecated in the field; `kubevirt_vm_created_total` is told by virt-controller"},
	{"kubevirt_node_deprecated_machine_types", "launchers bring their own QEMU, so nodes have no machine types"},
	{"cluster:kubevirt_api_request_deprecated_total:sum", "no version of an API is deprecated"},
	{"kubevirt_api_request_deprecated_total", "no version of an API is deprecated"},
	{"cluster:kubevirt_non_schedulable_nodes:sum", "it counts nodes of role `arbiter`, which are OpenShift's"},
	{"container:kubevirt_memory_delta_from_requested_bytes:max", "the kubelet and kube-state-metrics tell of any pod's memory"},
	{"kubevirt_memory_delta_from_requested_bytes", "the kubelet and kube-state-metrics tell of any pod's memory"},
	{"pvc:kubevirt_suspected_orphaned_storage_bytes:info", "kube-state-metrics tells of claims that no pod has"},
	{"clone_progress", "it is told by its newer name, `kubevirt_cdi_clone_progress_total`"},
	{"kubevirt_cdi_import_phase_info", "an import has one phase, and its DataVolume tells how far it is"},
	{"kubevirt_cdi_openstack_populator_progress_total", "there is no such populator"},
	{"kubevirt_cdi_ovirt_progress_total", "there is no such populator"},
	{"kubevirt_cdi_operator_up", "there is no operator but virt-operator, see `kubevirt_virt_operator_up`"},
	{"kubevirt_cdi_import_pods_high_restart", noExporter},
	{"kubevirt_cdi_upload_pods_high_restart", noExporter},
	{"kubevirt_cdi_clone_pods_high_restart", noExporter},
}
