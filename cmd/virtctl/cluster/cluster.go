// Package cluster finds the cluster and the namespace that virtctl's verbs work on, by the flags
// and files that kubectl uses, too.
package cluster

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/aggregation"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// Access is where the flags say that the cluster is.
type Access struct {
	config    clientcmd.ClientConfig
	overrides *clientcmd.ConfigOverrides
	asked     bool
}

// NewAccess adds the flags --kubeconfig, --context, --namespace and their neighbours to flags.
func NewAccess(flags *pflag.FlagSet) *Access {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig file; by default $KUBECONFIG, or ~/.kube/config")
	overrides := &clientcmd.ConfigOverrides{}
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	return &Access{config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), overrides: overrides}
}

// GivenNamespace is the one that --namespace names, "" without that flag. It needs no kubeconfig.
func (a *Access) GivenNamespace() string { return a.overrides.Context.Namespace }

// Namespace is the one that the flags or the kubeconfig's context name.
func (a *Access) Namespace() (string, error) {
	namespace, _, err := a.config.Namespace()
	if err != nil {
		return "", fmt.Errorf("finding the namespace: %w; set KUBECONFIG or --kubeconfig, or --namespace", err)
	}
	return namespace, nil
}

// Config is how the cluster's API is reached. What the API server warns of goes to standard error; while it cannot
// reach virt-api, clients of the configuration wait for some seconds.
func (a *Access) Config() (*rest.Config, error) {
	config, err := a.config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w; set KUBECONFIG or --kubeconfig", err)
	}
	a.asked = true
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	aggregation.Bear(config)
	return config, nil
}

// Asked says whether somebody was told how the cluster's API is reached, by which he asks it.
func (a *Access) Asked() bool { return a.asked }

// Client reaches the cluster's API.
func (a *Access) Client() (client.WithWatch, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster at %s: %w", config.Host, err)
	}
	return c, nil
}
