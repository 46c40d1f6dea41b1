package subresource

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/subresource/graph"
)

// graphOfVM shows what a VM is made of.
func (s *Server) graphOfVM(w http.ResponseWriter, r *http.Request) error {
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	vmi, err := s.instanceIfAny(r.Context(), key(r))
	if err != nil {
		return err
	}
	if vmi == nil || !metav1.IsControlledBy(vmi, vm) {
		return writeGraph(w, r, graph.Machine(vm, false, ""))
	}
	launcher, err := s.launcherName(r.Context(), vmi)
	if err != nil {
		return err
	}
	return writeGraph(w, r, graph.Machine(vm, true, launcher))
}

// graphOfVMI shows what a VMI is made of.
func (s *Server) graphOfVMI(w http.ResponseWriter, r *http.Request) error {
	vmi, err := s.instance(r.Context(), key(r))
	if err != nil {
		return err
	}
	launcher, err := s.launcherName(r.Context(), vmi)
	if err != nil {
		return err
	}
	return writeGraph(w, r, graph.Instance(vmi, launcher))
}

// launcherName is the name of vmi's pod, "" when there is none.
func (s *Server) launcherName(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (string, error) {
	pod, err := s.launcherPod(ctx, vmi)
	if err != nil || pod == nil {
		return "", err
	}
	return pod.Name, nil
}

// writeGraph answers with the part of the tree that the options ask for.
func writeGraph(w http.ResponseWriter, r *http.Request, root virtv1.ObjectGraphNode) error {
	options := &virtv1.ObjectGraphOptions{}
	if err := decode(r, options); err != nil {
		return err
	}
	selected, err := selection(options.LabelSelector)
	if err != nil {
		return badRequest("labelSelector: %v", err)
	}
	optional := options.IncludeOptionalNodes == nil || *options.IncludeOptionalNodes
	write(w, r, http.StatusOK, graph.Filter(root, optional, selected))
	return nil
}

// selection is everything where nothing is said.
func selection(by *metav1.LabelSelector) (labels.Selector, error) {
	if by == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return selector, nil
}
