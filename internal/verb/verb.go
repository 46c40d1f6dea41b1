// Package verb asks virt-api for what is done with virtual machines beside their specs, as virtctl does.
package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// timeout is how long an answer may take: a guest's agent has its time, too.
const timeout = time.Minute

// Caller asks virt-api.
type Caller struct{ rest rest.Interface }

// NewCaller makes a Caller that reaches virt-api through the API server of config.
func NewCaller(config *rest.Config) (*Caller, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer, config.Timeout = scheme.Codecs.WithoutConversion(), timeout
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of virt-api: %w", err)
	}
	return &Caller{rest: c}, nil
}

// Freeze makes the file systems of a VirtualMachineInstance's guest stand still until Unfreeze, or for limit; 0 leaves
// the limit to virt-launcher. The guest's agent does it.
func (c *Caller) Freeze(ctx context.Context, vmi client.ObjectKey, limit time.Duration) error {
	return c.put(ctx, "virtualmachineinstances", vmi, "freeze", &virtv1.FreezeUnfreezeTimeout{UnfreezeTimeout: &metav1.Duration{Duration: limit}})
}

// Unfreeze lets them go on.
func (c *Caller) Unfreeze(ctx context.Context, vmi client.ObjectKey) error {
	return c.put(ctx, "virtualmachineinstances", vmi, "unfreeze", struct{}{})
}

// Stop shuts a VirtualMachine down, and has it stay so.
func (c *Caller) Stop(ctx context.Context, vm client.ObjectKey) error {
	return c.put(ctx, "virtualmachines", vm, "stop", &virtv1.StopOptions{})
}

func (c *Caller) put(ctx context.Context, resource string, of client.ObjectKey, verb string, options any) error {
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encoding the options of %s: %w", verb, err)
	}
	err = c.rest.Put().AbsPath("/apis", virtv1.SubresourceGroupName, "v1", "namespaces", of.Namespace, resource, of.Name, verb).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("asking virt-api to %s %s: %w", verb, of, err)
	}
	return nil
}
