// Package node marks the node as one that VMs can be scheduled to, for as long as its
// virt-handler lives.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/processor"
)

// interval is how often the field's clients expect the heartbeat.
const interval = time.Minute

// soon is when a first beat that failed is tried again: nobody reaches virt-handler before it.
const soon = time.Second

// Heartbeat labels the node kubevirt.io/schedulable=true and with what it has for pods that ask
// for it, anew when the KubeVirt object says otherwise of it; renews the annotation
// kubevirt.io/heartbeat, and publishes the certificate of virt-handler's API, also when it
// was lost. It takes none of them away when it ends: a restart of virt-handler must not
// disturb, and an old heartbeat tells of a dead one.
type Heartbeat struct {
	// Client writes; Reader reads past any cache.
	Client client.Client
	Reader client.Reader
	// Cache has the KubeVirt object.
	Cache    cache.Cache
	NodeName string
	// KubeletRoot is the kubelet's root folder.
	KubeletRoot string
	// Description is the folder with libvirt's description of the node's processor; empty for none.
	Description string
	// Certificate is what virt-handler serves with, in PEM.
	Certificate []byte

	published atomic.Bool
	processor *processor.Processor // set by Start
	again     chan struct{}        // made by Start: what the node is labelled by has changed
}

// Published says whether the Node has shown the certificate.
func (h *Heartbeat) Published() bool { return h.published.Load() }

// Start beats until ctx is done; a beat that fails is logged and the next one tried.
func (h *Heartbeat) Start(ctx context.Context) error {
	h.again = make(chan struct{}, 1)
	if err := h.follow(ctx); err != nil {
		return err
	}
	var err error
	if h.processor, err = described(h.Description); err != nil { // what is not known is not offered
		log.FromContext(ctx).Error(err, "Failed to learn what the node's processor can be")
	}
	node := &corev1.Node{}
	for {
		if err := h.beat(ctx, node, metav1.Now()); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "The node's heartbeat failed")
			node = &corev1.Node{} // it may have been made anew
		}
		next := interval
		if !h.Published() {
			next = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.again:
		case <-time.After(next):
		}
	}
}

// beat writes one heartbeat; node is read when it is not known yet.
func (h *Heartbeat) beat(ctx context.Context, node *corev1.Node, now metav1.Time) error {
	if node.UID == "" {
		if err := h.Reader.Get(ctx, client.ObjectKey{Name: h.NodeName}, node); err != nil {
			return fmt.Errorf("getting node %s: %w", h.NodeName, err)
		}
	}
	stamp, err := json.Marshal(now) // the field's clients read a JSON string
	if err != nil {
		return fmt.Errorf("encoding the time: %w", err)
	}
	labels, err := abilities(h.KubeletRoot, realtimeRuntime)
	if err != nil { // what is not known is not offered
		log.FromContext(ctx).Error(err, "Failed to learn all that the node has to offer")
	}
	labels[v1.NodeSchedulable] = "true"
	if err := h.labelProcessor(ctx, node, labels); err != nil {
		return err
	}
	written, err := apply.FieldsAndRead(ctx, h.Client, node, names.ManagerHandler, map[string]any{"metadata": map[string]any{
		"labels": labels,
		"annotations": map[string]any{
			v1.VirtHandlerHeartbeat:            string(stamp),
			names.HandlerCertificateAnnotation: string(h.Certificate),
		},
	}})
	if err != nil {
		return err
	}
	h.published.Store(true)
	h.noteAnnotations(node, written.GetAnnotations())
	return nil
}
