package hostpath

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
	"github.com/slipway-vm/slipway/runtime/hostpath/legacy"
)

// podResync is how often pods that hold claims are looked at again, for one whose volume could not be read.
const podResync = 30 * time.Second

// pools knows the pools that this node has, from HostPathProvisioner objects, the node's labels and
// the pods that hold the claims of pools here.
type pools struct {
	options     Options
	client      kubernetes.Interface
	provisioner cache.SharedIndexInformer
	nodes       cache.SharedIndexInformer
	pods        cache.SharedIndexInformer

	updating sync.Mutex
	synced   bool                       // all that is watched was read; guarded by updating
	mounts   map[types.UID]driver.Place // of pods whose claim's volume was read; guarded by updating

	mu      sync.Mutex
	known   storage
	changed chan struct{} // closed at the next change of known
}

// storage is what the node has.
type storage struct {
	// places are those of the driver's pools, by their names.
	places map[string]driver.Place
	// legacy is the directory of the legacy provisioner; nil: the node has none.
	legacy *legacy.Config
}

func (s storage) equals(other storage) bool {
	same := s.legacy == other.legacy || s.legacy != nil && other.legacy != nil && *s.legacy == *other.legacy
	return same && maps.Equal(s.places, other.places)
}

func hasPools(s storage) bool { return len(s.places) > 0 }

func hasLegacy(s storage) bool { return s.legacy != nil }

// newPools returns the pools of a node, which are kept until ctx ends.
func newPools(ctx context.Context, options Options, client kubernetes.Interface, objects dynamic.Interface) (*pools, error) {
	resource := hppv1beta1.GroupVersion.WithResource("hostpathprovisioners")
	onlyNode := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", options.NodeName).String()
	}
	onlyHolders := func(o *metav1.ListOptions) {
		o.FieldSelector, o.LabelSelector = fields.OneTermEqualSelector("spec.nodeName", options.NodeName).String(), names.LabelPoolPod
	}
	p := &pools{
		options: options, client: client, mounts: map[types.UID]driver.Place{}, changed: make(chan struct{}),
		provisioner: dynamicinformer.NewDynamicSharedInformerFactory(objects, 0).ForResource(resource).Informer(),
		nodes: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(onlyNode),
			informers.WithTransform(labelsOnly)).Core().V1().Nodes().Informer(),
		// Of Slipway's namespace alone: a pod of another is nobody's pool, whatever its labels.
		pods: informers.NewSharedInformerFactoryWithOptions(client, podResync, informers.WithNamespace(options.Namespace),
			informers.WithTweakListOptions(onlyHolders), informers.WithTransform(withoutManagers)).Core().V1().Pods().Informer(),
	}
	for _, informer := range p.informers() {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { p.update(ctx) },
			UpdateFunc: func(any, any) { p.update(ctx) },
			DeleteFunc: func(any) { p.update(ctx) },
		})
		if err != nil {
			return nil, fmt.Errorf("watching the pools of node %s: %w", options.NodeName, err)
		}
	}
	return p, nil
}

func (p *pools) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{p.provisioner, p.nodes, p.pods}
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
	for _, informer := range p.informers() {
		group.Go(func() { informer.RunWithContext(ctx) })
	}
	group.Go(func() { p.begin(ctx) })
	group.Wait()
	return nil
}

// begin tells of pools once all that is watched was read: what is in a pool that is missing among others would be
// taken for deleted.
func (p *pools) begin(ctx context.Context) {
	var read []cache.InformerSynced
	for _, informer := range p.informers() {
		read = append(read, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), read...) {
		return
	}
	p.updating.Lock()
	p.synced = true
	p.updating.Unlock()
	p.update(ctx)
}

// Pools returns where each pool is by its name. The map is the caller's.
func (p *pools) Pools() map[string]driver.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.known.places)
}

// Legacy returns the directory of the legacy provisioner, false when the node has none.
func (p *pools) Legacy() (legacy.Config, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known.legacy == nil {
		return legacy.Config{}, false
	}
	return *p.known.legacy, true
}

// await waits until has says what is wanted of what the node has, and returns false when ctx ends before.
func (p *pools) await(ctx context.Context, has func(storage) bool, wanted bool) bool {
	for {
		p.mu.Lock()
		reached, changed := has(p.known) == wanted, p.changed
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

func (p *pools) update(ctx context.Context) {
	p.updating.Lock()
	defer p.updating.Unlock()
	found, err := p.compute(ctx)
	if err != nil {
		p.options.Log.Error(err, "Reading the storage pools failed, the earlier ones stay")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if found.equals(p.known) {
		return
	}
	p.options.Log.Info("Storage pools changed", "pools", found.places, "legacy", found.legacy)
	p.known = found
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pools) compute(ctx context.Context) (storage, error) {
	found := storage{places: map[string]driver.Place{}}
	if !p.synced {
		return found, nil
	}
	active, err := p.active()
	if active == nil || err != nil {
		return found, err
	}
	item, known, err := p.nodes.GetStore().GetByKey(p.options.NodeName)
	if err != nil {
		return found, fmt.Errorf("reading node %s: %w", p.options.NodeName, err)
	}
	node, ok := item.(*corev1.Node)
	if !known || !ok {
		return found, nil
	}
	p.placeHeld(ctx, found.places)
	if !active.Spec.Workload.Selects(node.Labels) {
		return found, nil
	}
	for _, pool := range active.Spec.Pools() {
		found.places[pool.Name] = p.place(ctx, pool)
	}
	if config := active.Spec.PathConfig; config != nil {
		found.legacy = &legacy.Config{Path: config.Path, UseNamingPrefix: config.UseNamingPrefix, Hostname: node.Labels[corev1.LabelHostname]}
		found.places[hppv1beta1.LegacyPool] = driver.Place{Path: found.places[hppv1beta1.LegacyPool].Path, Make: true}
	}
	return found, nil
}

// active returns the HostPathProvisioner that counts, nil when there is none.
func (p *pools) active() (*hppv1beta1.HostPathProvisioner, error) {
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
	return hppv1beta1.Active(objects), nil
}
