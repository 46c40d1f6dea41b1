// Package devices has the verb that lists the devices of nodes that VMs may use.
package devices

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what the verb needs of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "permitted-devices",
		Short: "Lists the devices of nodes that VMs may use",
		Long: `Lists the devices of nodes that the KubeVirt object of an installation permits VMs to use, by the names of their
resources. The namespace is that of the installation.`,
		Example: `  virtctl permitted-devices -n kubevirt-hyperconverged`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, err := cluster.Namespace()
			if err != nil {
				return err
			}
			c, err := cluster.Client()
			if err != nil {
				return err
			}
			found := &virtv1.KubeVirtList{}
			if err := c.List(cmd.Context(), found, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("listing the KubeVirt objects of %s: %w", namespace, err)
			}
			if len(found.Items) == 0 {
				return fmt.Errorf("no KubeVirt resource in %q namespace; name that of the installation with --namespace", namespace)
			}
			host, gpu := permitted(found.Items[0].Spec.Configuration.PermittedHostDevices)
			fmt.Fprintf(cmd.OutOrStdout(), "Permitted Devices: \nHost Devices: \n%s \nGPU Devices: \n%s\n", strings.Join(host, ", "), strings.Join(gpu, ", "))
			return nil
		},
	}
}

// permitted returns the resources of devices, and those of parts of devices.
func permitted(devices *virtv1.PermittedHostDevices) (host, gpu []string) {
	if devices == nil {
		return nil, nil
	}
	for _, device := range devices.PciHostDevices {
		host = append(host, device.ResourceName)
	}
	for _, device := range devices.USB {
		host = append(host, device.ResourceName)
	}
	for _, device := range devices.MediatedDevices {
		gpu = append(gpu, device.ResourceName)
	}
	return host, gpu
}
