// Package resizer makes the node's volumes as large as their claims ask for: the driver expands the
// volume, then the PersistentVolume says so, then the claim. Each step can be repeated,
// so that an end of the process between two leaves nothing but work for the next one.
package resizer

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
)

// Retries wait from firstRetry, doubled up to lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Volumes expands volumes: the driver's controller service.
type Volumes interface {
	ControllerExpandVolume(context.Context, *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error)
}

// Options are the facts that a Resizer works with.
type Options struct {
	// Driver is the driver's name.
	Driver string
	// NodeName is the node's name, TopologyKey the label that volumes are bound to it by.
	NodeName, TopologyKey string
	// Log hears what happens.
	Log logr.Logger
}

// Resizer expands the volumes of the node's claims. Use New.
type Resizer struct {
	options Options
	volumes Volumes
	objects client.Client
	claims  corelisters.PersistentVolumeClaimLister
	known   corelisters.PersistentVolumeLister
	synced  []cache.InformerSynced
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	events  events.EventBroadcaster
	tell    events.EventRecorder
}

// New returns a Resizer that hears of claims and volumes by the informers of factory, which it does not start,
// and tells of them in events.
func New(sink kubernetes.Interface, objects client.Client, factory informers.SharedInformerFactory, volumes Volumes, options Options) (*Resizer, error) {
	claims, known := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	r := &Resizer{
		options: options, volumes: volumes, objects: objects, claims: claims.Lister(), known: known.Lister(),
		synced: []cache.InformerSynced{claims.Informer().HasSynced, known.Informer().HasSynced},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry)),
		events: events.NewBroadcaster(&events.EventSinkImpl{Interface: sink.EventsV1()}),
	}
	r.tell = r.events.NewRecorder(scheme.New(), "hostpath-resizer")
	for informer, key := range map[cache.SharedIndexInformer]func(any) (cache.ObjectName, bool){
		claims.Informer(): ofClaim, known.Informer(): ofVolume,
	} {
		changed := func(object any) {
			if name, ok := key(object); ok {
				r.queue.Add(name)
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
		})
		if err != nil {
			return nil, fmt.Errorf("watching the sizes of claims: %w", err)
		}
	}
	return r, nil
}

// ofClaim is the key of a claim that may need a larger volume.
func ofClaim(object any) (cache.ObjectName, bool) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || !growing(claim) && !complains(claim) {
		return cache.ObjectName{}, false
	}
	return cache.ObjectName{Namespace: claim.Namespace, Name: claim.Name}, true
}

// ofVolume is the key of a volume's claim, which may have come first.
func ofVolume(object any) (cache.ObjectName, bool) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return cache.ObjectName{}, false
	}
	return cache.ObjectName{Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name}, true
}

// Run expands volumes until ctx ends.
func (r *Resizer) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	if err := r.events.StartRecordingToSinkWithContext(ctx); err != nil {
		r.options.Log.Error(err, "Sizes of volumes are expanded without events")
	}
	defer r.events.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		return
	}
	for {
		key, end := r.queue.Get()
		if end {
			return
		}
		err := r.reconcile(ctx, key)
		if err != nil && ctx.Err() == nil {
			r.options.Log.Error(err, "Expanding a volume failed", "claim", key.String())
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
		r.queue.Done(key)
	}
}
