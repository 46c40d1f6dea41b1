package subresource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// maxBody bounds what a client may send, in bytes, as the API server does.
const maxBody = 3 << 20

// forcedGraceSeconds is how long a guest has whose restart is forced: the shortest time that
// lets the kubelet end its pod in order.
const forcedGraceSeconds = 1

// key names the object that r is about.
func key(r *http.Request) client.ObjectKey {
	return client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// decode reads options that a client may leave out.
func decode(r *http.Request, options any) error {
	err := yaml.NewYAMLOrJSONDecoder(io.LimitReader(r.Body, maxBody), 1024).Decode(options)
	if err != nil && !errors.Is(err, io.EOF) {
		return badRequest(unreadableBody, err)
	}
	return nil
}

func (s *Server) virtualMachine(ctx context.Context, key client.ObjectKey) (*virtv1.VirtualMachine, error) {
	vm := &virtv1.VirtualMachine{}
	err := s.live.Get(ctx, key, vm)
	if apierrors.IsNotFound(err) {
		return nil, refuse(apierrors.NewNotFound(virtv1.Resource(kindVM), key.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("unable to retrieve vm [%s]: %w", key.Name, err)
	}
	return vm, nil
}

// instanceIfAny is the VMI of key's name, nil when there is none.
func (s *Server) instanceIfAny(ctx context.Context, key client.ObjectKey) (*virtv1.VirtualMachineInstance, error) {
	vmi := &virtv1.VirtualMachineInstance{}
	err := s.live.Get(ctx, key, vmi)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("unable to retrieve vmi [%s]: %w", key.Name, err)
	}
	return vmi, nil
}

// start makes a VM run.
func (s *Server) start(w http.ResponseWriter, r *http.Request) error {
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	vmi, err := s.instanceIfAny(r.Context(), key(r))
	if err != nil {
		return err
	}
	if err := startable(vm, vmi); err != nil {
		return err
	}
	options := &virtv1.StartOptions{}
	if err := decode(r, options); err != nil {
		return err
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return fmt.Errorf("reading the run strategy: %w", err)
	}
	begin := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest}
	if options.Paused {
		begin.Data = map[string]string{virtv1.StartRequestDataPausedKey: virtv1.StartRequestDataPausedTrue}
	}
	switch strategy {
	case virtv1.RunStrategyHalted:
		if options.Paused && !startsPaused(vm) {
			err = s.request(r.Context(), vm, options.DryRun, begin)
		} else {
			err = s.patchSpec(r.Context(), vm, options.DryRun, runningPatch(vm, true))
		}
	case virtv1.RunStrategyRerunOnFailure, virtv1.RunStrategyManual:
		err = s.startAgain(r.Context(), vm, vmi, startAgain{strategy: strategy, begin: begin, dryRun: options.DryRun})
	default:
		err = conflict(kindVM, vm.Name, "%v does not support manual start requests", strategy)
	}
	return accepted(w, err)
}

// startable refuses the start of a VM that runs, or is being renamed or restored.
func startable(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) error {
	if err := leaving(vm); err != nil {
		return err
	}
	if by := vm.Status.RestoreInProgress; by != nil {
		return conflict(kindVM, vm.Name, "Cannot start VM until restore %q completes", *by)
	}
	if vmi != nil && !vmi.IsFinal() && vmi.Status.Phase != virtv1.Unknown && vmi.Status.Phase != virtv1.VmPhaseUnset {
		return conflict(kindVM, vm.Name, "VM is already running")
	}
	return nil
}

// startAgain is what is needed to start a VM that keeps its run strategy.
type startAgain struct {
	strategy virtv1.VirtualMachineRunStrategy
	begin    virtv1.VirtualMachineStateChangeRequest
	dryRun   []string
}

// startAgain starts a VM whose last run, if it had one, has ended.
func (s *Server) startAgain(ctx context.Context, vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, how startAgain) error {
	rerun := how.strategy == virtv1.RunStrategyRerunOnFailure
	switch {
	case vmi == nil || !vmi.IsFinal():
		return s.request(ctx, vm, how.dryRun, how.begin)
	case rerun && vmi.Status.Phase == virtv1.Failed:
		return conflict(kindVM, vm.Name, "%v does not support starting VM from failed state", how.strategy)
	}
	return s.request(ctx, vm, how.dryRun, stopOf(vmi), how.begin)
}

func startsPaused(vm *virtv1.VirtualMachine) bool {
	template := vm.Spec.Template
	return template != nil && template.Spec.StartStrategy != nil && *template.Spec.StartStrategy == virtv1.StartStrategyPaused
}

func stopOf(vmi *virtv1.VirtualMachineInstance) virtv1.VirtualMachineStateChangeRequest {
	return virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &vmi.UID}
}

// restart ends a VM's run and begins another.
func (s *Server) restart(w http.ResponseWriter, r *http.Request) error {
	options := &virtv1.RestartOptions{}
	if err := decode(r, options); err != nil {
		return err
	}
	if grace := options.GracePeriodSeconds; grace != nil && *grace > 0 {
		return badRequest("For force restart, only gracePeriod=0 is supported for now")
	} else if grace != nil && *grace < 0 {
		return badRequest("gracePeriod has to be greater or equal to 0")
	}
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return fmt.Errorf("reading the run strategy: %w", err)
	}
	if strategy == virtv1.RunStrategyHalted || strategy == virtv1.RunStrategyOnce {
		return conflict(kindVM, vm.Name, "RunStategy %v does not support manual restart requests", strategy)
	}
	vmi, err := s.instanceIfAny(r.Context(), key(r))
	if err != nil {
		return err
	}
	if vmi == nil {
		return conflict(kindVM, vm.Name, "VM is not running: %v", virtv1.RunStrategyHalted)
	}
	err = s.request(r.Context(), vm, options.DryRun, stopOf(vmi), virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest})
	if err == nil && options.GracePeriodSeconds != nil && len(options.DryRun) == 0 {
		err = s.endPod(r.Context(), vmi)
	}
	return accepted(w, err)
}

// endPod ends the pod of vmi, if it has one that runs, without waiting for the guest.
func (s *Server) endPod(ctx context.Context, vmi *virtv1.VirtualMachineInstance) error {
	pod, err := s.launcherPod(ctx, vmi)
	if err != nil || pod == nil || pod.Status.Phase != corev1.PodRunning {
		return err
	}
	uid := pod.UID
	err = s.client.Delete(ctx, pod, client.GracePeriodSeconds(forcedGraceSeconds), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}

// request asks virt-controller for changes.
func (s *Server) request(ctx context.Context, vm *virtv1.VirtualMachine, dryRun []string, changes ...virtv1.VirtualMachineStateChangeRequest) error {
	p, err := requestPatch(vm, changes...)
	if err != nil {
		return err
	}
	content, err := p.encode()
	if err != nil {
		return err
	}
	options := &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun, FieldManager: names.ManagerAPI}}
	return patched(kindVM, vm.Name, s.client.Status().Patch(ctx, vm, client.RawPatch(types.JSONPatchType, content), options))
}

func (s *Server) patchSpec(ctx context.Context, vm *virtv1.VirtualMachine, dryRun []string, p patch) error {
	content, err := p.encode()
	if err != nil {
		return err
	}
	options := &client.PatchOptions{DryRun: dryRun, FieldManager: names.ManagerAPI}
	return patched(kindVM, vm.Name, s.client.Patch(ctx, vm, client.RawPatch(types.JSONPatchType, content), options))
}

// patched says what became of a patch: one whose test failed met somebody else's change.
func patched(kind, name string, err error) error {
	if err == nil {
		return nil
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if ok && status.ErrStatus.Code == http.StatusUnprocessableEntity && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Kind == "") {
		meanwhile := fmt.Errorf("it changed meanwhile, look at it and try again: %w", err)
		return &refusal{status: apierrors.NewConflict(virtv1.Resource(kind), name, meanwhile).ErrStatus, raced: true}
	}
	return fmt.Errorf("patching %s %s: %w", kind, name, err)
}

// accepted answers that it will be done.
func accepted(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
