package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/runtime/processor"
)

// described reads what libvirt knows of the node's processor from folder; nil where nobody has asked it, or nothing
// came of that.
func described(folder string) (*processor.Processor, error) {
	if folder == "" {
		return nil, nil
	}
	var documents processor.Documents
	for name, content := range map[string]*[]byte{
		processor.HostFile: &documents.Host, processor.DomainFile: &documents.Domain, processor.FeaturesFile: &documents.Features,
	} {
		var err error
		if *content, err = os.ReadFile(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the description of the node: %w", err)
		}
	}
	return processor.Read(documents)
}

// labelProcessor adds the labels of the node's processor to labels. A node that the field's annotation takes out gets
// none, and keeps those that somebody else gave it.
func (h *Heartbeat) labelProcessor(ctx context.Context, node *corev1.Node, labels map[string]any) error {
	if skipped(node.Annotations) || h.processor == nil {
		return nil
	}
	list := &v1.KubeVirtList{}
	if err := h.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading which processors are obsolete: %w", err)
	}
	var kubevirt *v1.KubeVirt
	if len(list.Items) > 0 {
		kubevirt = &list.Items[0]
	}
	for key, value := range processor.Labels(h.processor, processor.Obsolete(kubevirt)) {
		labels[key] = value
	}
	return nil
}

func skipped(annotations map[string]string) bool {
	_, is := annotations[v1.LabellerSkipNodeAnnotation]
	return is
}

// noteAnnotations keeps what annotations node has, as the answer to a beat shows it, for the next one; that comes at once
// when this one did not know whether the node is to be labelled.
func (h *Heartbeat) noteAnnotations(node *corev1.Node, now map[string]string) {
	if skipped(now) != skipped(node.Annotations) {
		h.beatAgain()
	}
	node.Annotations = now
}

func (h *Heartbeat) beatAgain() {
	select {
	case h.again <- struct{}{}:
	default: // the next beat will see this change, too
	}
}

// follow has the next beat come when the KubeVirt object changes by more than its status.
func (h *Heartbeat) follow(ctx context.Context) error {
	informer, err := h.Cache.GetInformer(ctx, &v1.KubeVirt{})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, now any) {
			was, isOne := before.(*v1.KubeVirt)
			is, areBoth := now.(*v1.KubeVirt)
			if !isOne || !areBoth || was.Generation != is.Generation {
				h.beatAgain()
			}
		},
		DeleteFunc: func(any) { h.beatAgain() },
	})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	return nil
}
