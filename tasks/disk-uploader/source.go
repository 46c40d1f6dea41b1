package diskuploader

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/vmlife"
)

// source is what the API says about the disk.
type source struct {
	labels       map[string]string
	architecture string
}

// look reads what the disk is of.
func look(ctx context.Context, call *declare.Call, o options) (source, error) {
	s := source{architecture: runtime.GOARCH}
	if o.kind == kindVM {
		owner := &vmlife.VM{Client: call.Client, Key: client.ObjectKey{Namespace: call.Namespace, Name: o.source}, Log: call.Log}
		vm, err := owner.Get(ctx)
		if err != nil {
			return s, err
		}
		if claims := claimsOf(vm); !slices.Contains(claims, o.volume) {
			return s, fmt.Errorf("%s: VirtualMachine %s has no disk on claim %s; its claims are: %s", paramVolume, o.source, o.volume, strings.Join(claims, ", "))
		}
		if named := vm.Spec.Template.Spec.Architecture; named != "" {
			s.architecture = named
		}
	}
	var pvc corev1.PersistentVolumeClaim
	err := call.Client.Get(ctx, client.ObjectKey{Namespace: call.Namespace, Name: o.volume}, &pvc)
	if apierrors.IsForbidden(err) {
		return s, fmt.Errorf("reading claim %s: %w; run the task as its own ServiceAccount, %s-task", o.volume, err, "disk-uploader")
	}
	if err != nil {
		return s, fmt.Errorf("reading claim %s: %w", o.volume, err)
	}
	s.labels = pvc.Labels
	return s, nil
}

// claimsOf are the names of the claims that the VM has disks on; a DataVolume's claim has its name.
func claimsOf(vm *virtv1.VirtualMachine) []string {
	var claims []string
	if vm.Spec.Template == nil {
		return nil
	}
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			claims = append(claims, volume.PersistentVolumeClaim.ClaimName)
		case volume.DataVolume != nil:
			claims = append(claims, volume.DataVolume.Name)
		}
	}
	return claims
}
