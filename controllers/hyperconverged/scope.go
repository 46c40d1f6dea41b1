package hyperconverged

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
)

// scope is what one pass over the HyperConverged object knows. The comment of each
// field says which step sets it.
type scope struct {
	hco *hcov1.HyperConverged // Reconcile

	conflicts []string // refuseConflicts: what another installation has in this cluster
	blockers  []string // remove: workloads that keep the installation from being removed

	uncustomized error             // customizeComponents: why components cannot be what KubeVirt and CDI make of them
	customized   map[identity]bool // customizeComponents: those that these change

	classless string // planComponents: that the PriorityClass that CDI names is missing

	wanted  []*unstructured.Unstructured // planComponents, planBundles, addSizes
	waiting []string                     // planBundles: what is missing outside, and where it is asked for

	kubevirt *virtv1.KubeVirt // applyOperands
	cdi      *cdiv1.CDI       // applyOperands
	ssp      *sspv1beta3.SSP  // applyOperands

	settings *sspv1beta3.SSPSpec // applyOperands: what the SSP object is to say
	sizes    bool                // applyOperands: common instance types and preferences are asked for
	paused   bool                // applyOperands: tasks and pipelines are left as they are
	bundled  bool                // applyAndObserve: tasks and pipelines are as they are wanted

	sized   bool     // addSizes: it is known which names are taken
	taken   []string // addSizes: objects of others with the names of common instance types and preferences
	unsized error    // addSizes: why common instance types and preferences could not be looked at

	sources    []hcov1.DataImportCronTemplateStatus // planSources: the boot sources that are asked for
	crons      []*unstructured.Unstructured         // planSources: their DataImportCrons, where there is a namespace
	homeless   []string                             // planSources: namespaces of boot images that are missing
	undeployed map[string]verdict                   // planSources, applySources: why boot sources have no DataImportCron, by name
	unplanned  error                                // planSources: why boot sources could not be planned
	unsourced  error                                // applySources: why some have no DataImportCron
	sourced    bool                                 // applySources: it is known which names are taken
	later      bool                                 // applySources: some could not be admitted, and are tried again

	fingerprint string // nameWanted: of the set of wanted objects

	outdated  *int       // countOutdated: VMIs with a former launcher; nil when they were not counted
	workloads []workload // observe
	removed   bool       // remove: nothing is left

	err error // Reconcile: what went wrong, nil when every step was done; of boot sources their own fields tell
}
