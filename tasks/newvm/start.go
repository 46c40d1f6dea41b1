package newvm

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/internal/aggregation"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// startGroup serves the verbs on VirtualMachines that are no writes of the object.
const startGroup = "subresources.kubevirt.io"

// start starts vm when its strategy leaves that to the user; every other one runs by itself by now.
func start(ctx context.Context, call *declare.Call, vm *virtv1.VirtualMachine) error {
	if vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != virtv1.RunStrategyManual {
		return nil
	}
	call.Log.Info("starting VirtualMachine", "name", vm.Namespace+"/"+vm.Name)
	config, err := ctrl.GetConfig()
	if err == nil {
		err = startThrough(ctx, config, vm)
	}
	if err != nil {
		return fmt.Errorf("starting VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}

func startThrough(ctx context.Context, config *rest.Config, vm *virtv1.VirtualMachine) error {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	aggregation.Bear(config)
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	err = c.Put().AbsPath("/apis", startGroup, "v1", "namespaces", vm.Namespace, "virtualmachines", vm.Name, "start").
		SetHeader("Content-Type", "application/json").Body([]byte("{}")).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		return errors.New("its run strategy is Manual, and the cluster does not serve " + startGroup + ", through which such a one is started; use Always, or Halted with startVM")
	case apierrors.IsConflict(err): // it runs already: an earlier try started it
		return nil
	}
	return err //nolint:wrapcheck // start says what was done
}
