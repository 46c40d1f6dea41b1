package hostpath

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
)

// pools knows the pools that this node has, from HostPathProvisioner objects and the node's labels.
type pools struct {
	node        string
	log         logr.Logger
	provisioner cache.SharedIndexInformer
	nodes       cache.SharedIndexInformer

	mu      sync.Mutex
	paths   map[string]string
	changed chan struct{} // closed at the next change of paths
}

func newPools(node string, client kubernetes.Interface, objects dynamic.Interface, log logr.Logger) (*pools, error) {
	resource := hppv1beta1.GroupVersion.WithResource("hostpathprovisioners")
	onlyNode := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", node).String()
	}
	p := &pools{
		node: node, log: log, changed: make(chan struct{}),
		provisioner: dynamicinformer.NewDynamicSharedInformerFactory(objects, 0).ForResource(resource).Informer(),
		nodes: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(onlyNode),
			informers.WithTransform(labelsOnly)).Core().V1().Nodes().Informer(),
	}
	for _, informer := range []cache.SharedIndexInformer{p.provisioner, p.nodes} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { p.update() },
			UpdateFunc: func(any, any) { p.update() },
			DeleteFunc: func(any) { p.update() },
		})
		if err != nil {
			return nil, fmt.Errorf("watching the pools of node %s: %w", node, err)
		}
	}
	return p, nil
}

// labelsOnly drops what is not needed of the node, which its kubelet changes often.
func labelsOnly(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}, nil
	}
	return object, nil
}

// run watches until ctx ends.
func (p *pools) run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { p.provisioner.RunWithContext(ctx) })
	group.Go(func() { p.nodes.RunWithContext(ctx) })
	group.Wait()
	return nil
}

// Pools returns the path of each pool by its name. The map is the caller's.
func (p *pools) Pools() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.paths)
}

// await waits until there are some pools, or none, and returns false when ctx ends before.
func (p *pools) await(ctx context.Context, some bool) bool {
	for {
		p.mu.Lock()
		reached, changed := (len(p.paths) > 0) == some, p.changed
		p.mu.Unlock()
		if reached && ctx.Err() == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

func (p *pools) update() {
	paths, err := p.compute()
	if err != nil {
		p.log.Error(err, "Reading the storage pools failed, the earlier ones stay")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if maps.Equal(paths, p.paths) {
		return
	}
	p.log.Info("Storage pools changed", "pools", paths)
	p.paths = paths
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pools) compute() (map[string]string, error) {
	paths := map[string]string{}
	var objects []hppv1beta1.HostPathProvisioner
	for _, item := range p.provisioner.GetStore().List() {
		content, ok := item.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		var object hppv1beta1.HostPathProvisioner
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &object); err != nil {
			return nil, fmt.Errorf("reading HostPathProvisioner %s: %w", content.GetName(), err)
		}
		objects = append(objects, object)
	}
	active := hppv1beta1.Active(objects)
	if active == nil {
		return paths, nil
	}
	item, known, err := p.nodes.GetStore().GetByKey(p.node)
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", p.node, err)
	}
	node, ok := item.(*corev1.Node)
	if !known || !ok || !active.Spec.Workload.Selects(node.Labels) {
		return paths, nil
	}
	for _, pool := range active.Spec.StoragePools {
		paths[pool.Name] = pool.Path
	}
	return paths, nil
}
