package template

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request is what the flags ask for.
type request struct {
	name, vm, vmNamespace string
}

func newCreateCommand(cluster Cluster) *cobra.Command {
	r := &request{}
	command := &cobra.Command{
		Use:   "create",
		Short: "Asks for a VirtualMachineTemplate of a VirtualMachine that there is",
		Long: `Creates a VirtualMachineTemplateRequest, by which the disks of a VirtualMachine are copied and a VirtualMachineTemplate
is made of it. It does not wait for that: the request's condition Ready tells.

The template is made in the namespace of the request. It keeps what the guest knows: remove its keys and names first.`,
		Example: `  # Of a VM of the same namespace:
  virtctl template create --vm-name golden --name debian

  # Of another namespace's VM:
  virtctl template create -n catalog --vm-name golden --vm-namespace builds --name debian

  # Wait for it, and use it:
  kubectl wait vmtr/golden-x2x4z -n catalog --for condition=Ready
  virtctl template process debian -n catalog -p NAME=web --create`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd, cluster) },
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&r.vm, "vm-name", "", "Name of the VirtualMachine. Required.")
	flags.StringVar(&r.vmNamespace, "vm-namespace", "", "Its namespace; by default that of the request.")
	flags.StringVar(&r.name, flagName, "", "Name of the template; by default that of the request, which is random.")
	_ = command.MarkFlagRequired("vm-name")
	return command
}

func (r *request) run(cmd *cobra.Command, cluster Cluster) error {
	namespace, err := cluster.Namespace()
	if err != nil {
		return err
	}
	c, err := cluster.Client()
	if err != nil {
		return err
	}
	object := r.object(namespace)
	if err := c.Create(cmd.Context(), object); err != nil {
		return r.failed(object, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s.%s/%s created\n", strings.ToLower(kindRequest), kubevirtGroup, object.GetName())
	return nil
}

func (r *request) failed(object client.Object, err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("this cluster makes no templates of VirtualMachines: it does not serve %s (%s); write a template by hand, or convert one with virtctl template convert", kindRequest, current)
	}
	return fmt.Errorf("creating a %s in namespace %s: %w", kindRequest, object.GetNamespace(), err)
}

// object is the VirtualMachineTemplateRequest.
func (r *request) object(namespace string) *unstructured.Unstructured {
	from := r.vmNamespace
	if from == "" {
		from = namespace
	}
	spec := map[string]any{"virtualMachineRef": map[string]any{"namespace": from, "name": r.vm}}
	if r.name != "" {
		spec["templateName"] = r.name
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(current.WithKind(kindRequest))
	object.SetNamespace(namespace)
	object.SetGenerateName(r.vm + "-")
	return object
}
