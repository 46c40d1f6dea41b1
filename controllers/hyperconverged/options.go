package hyperconverged

import (
	"errors"
	"fmt"
	"io/fs"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/customization"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// Bundle is a set of plain YAML files that is installed into the namespaces that the
// HyperConverged object asks for: the tasks, the pipelines.
type Bundle struct {
	Name  string
	Files fs.FS
}

// Options configures the operator.
type Options struct {
	// Namespace in which the operator, its HyperConverged object and the components live.
	Namespace string
	// Images of the components; all three are needed.
	SlipwayImage, LauncherImage, GuestfsImage string
	// KubeletRoot is the kubelet's root folder on the nodes; found out when empty.
	KubeletRoot string
	// Version of this operator.
	Version string
	// Bundles to install where spec.workloadSources.tektonNamespaces says.
	Bundles []Bundle
	// Sizes are the files of the common instance types and preferences, plain YAML too; nil for none.
	Sizes fs.FS
	// BootSources are the files of the common boot images, DataImportCrons; nil for none.
	BootSources fs.FS
	// Programs have the flags of the components' programs, for the objects that set some; nil for none.
	Programs customization.Programs
	// WebhookURL is where the API server reaches the operator's webhooks, without a path.
	// Empty: through Service virt-operator-webhook, for an operator that runs in a pod.
	WebhookURL string
	// WebhookPort is where the operator serves them.
	WebhookPort int
	// HealthAddress serves /healthz and /readyz, MetricsAddress /metrics; "0" serves none.
	HealthAddress, MetricsAddress string
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
	// Extend adds what else the operator does to its manager, before that starts; nil for nothing.
	Extend func(ctrl.Manager) error
	// lead is how the lease is kept; slowLead when left out.
	lead lead
}

// Validate says what is missing.
func (o Options) Validate() error {
	var problems []error
	for env, value := range map[string]string{
		names.EnvSlipwayImage: o.SlipwayImage, names.EnvLauncherImage: o.LauncherImage, names.EnvGuestfsImage: o.GuestfsImage,
	} {
		if value == "" {
			problems = append(problems, fmt.Errorf("environment variable %s is not set; it names an image of this installation", env))
		}
	}
	if o.Namespace == "" {
		problems = append(problems, fmt.Errorf("the namespace is not known; pass --namespace or set %s", names.EnvPodNamespace))
	}
	return errors.Join(problems...)
}

// Values returns what the components' YAML is rendered with.
func (o Options) Values() render.Values {
	return render.Values{
		Namespace: o.Namespace, KubeletRoot: o.KubeletRoot, Version: o.Version, PullPolicy: "IfNotPresent",
		SlipwayImage: o.SlipwayImage, LauncherImage: o.LauncherImage, GuestfsImage: o.GuestfsImage,
	}
}
