package hyperconverged

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// identity names one object in the cluster.
type identity struct {
	schema.GroupKind
	client.ObjectKey
}

func identify(object client.Object) identity {
	return identity{object.GetObjectKind().GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object)}
}

// record is what is remembered of an applied object, to know without a request that nothing changed.
type record struct {
	content string // hash of what was applied
	version string // of the object that came of it
}

// ledger remembers what this process applied. It is only a saving of requests: empty, everything is applied again.
type ledger struct {
	mu      sync.Mutex
	records map[identity]record
}

func (l *ledger) matches(id identity, r record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.records[id]
	return ok && known == r
}

// knows says whether version is that which came of what was applied to id last.
func (l *ledger) knows(id identity, version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[id].version == version
}

func (l *ledger) put(id identity, r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[identity]record{}
	}
	l.records[id] = r
}

func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = nil
}

// applyComponents applies every wanted object that differs from what is there. One that
// fails does not keep the others from being applied.
func (r *Reconciler) applyComponents(ctx context.Context, s *scope) error {
	var problems *multierror.Error
	s.bundled = true
	for _, object := range s.wanted {
		if err := r.applyOne(ctx, object); err != nil {
			problems = multierror.Append(problems, err)
			s.bundled = s.bundled && !r.isBundled(object)
		}
	}
	if err := problems.ErrorOrNil(); err != nil {
		return fmt.Errorf("applying components: %w", err)
	}
	return nil
}

func (r *Reconciler) applyOne(ctx context.Context, object *unstructured.Unstructured) error {
	if err := r.watch(ctx, object.GroupVersionKind()); err != nil {
		return err
	}
	if early, err := r.premature(ctx, object); err != nil {
		return fmt.Errorf("looking at %s %s: %w", object.GetKind(), object.GetName(), err)
	} else if early {
		return nil
	}
	content, err := hashOf(object)
	if err != nil {
		return err
	}
	id := identify(object)
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err = r.Client.Get(ctx, id.ObjectKey, live)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading %s %s: %w", id.Kind, id.ObjectKey, err)
	}
	if err == nil && r.applied.matches(id, record{content, versionOf(live)}) {
		return nil
	}
	if err == nil && isSize(object) {
		if settled, err := r.settleSize(ctx, object, content); err != nil || settled {
			return err
		}
	}
	log.FromContext(ctx).V(1).Info("applying", "kind", id.Kind, "object", id.ObjectKey)
	if err := r.send(ctx, object.DeepCopy()); err != nil {
		return err
	}
	// The answer carries no generation; the cache tells it with the event that follows.
	fresh := &metav1.PartialObjectMetadata{}
	fresh.SetGroupVersionKind(object.GroupVersionKind())
	if err := r.Reader.Get(ctx, id.ObjectKey, fresh); err != nil {
		return fmt.Errorf("reading %s %s back: %w", id.Kind, id.ObjectKey, err)
	}
	r.applied.put(id, record{content, versionOf(fresh)})
	return nil
}

// send applies object, after what an apply would leave behind of it has gone.
func (r *Reconciler) send(ctx context.Context, object *unstructured.Unstructured) error {
	if err := r.dropWebhooks(ctx, object); err != nil {
		return fmt.Errorf("preparing %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return apply.Object(ctx, r.Client, object, names.ManagerOperator)
}

// versionOf changes when someone edits the object, and where the kind allows it not when its status changes.
// Instance types and preferences have no status, and clients look for their labels.
func versionOf(object client.Object) string {
	if generation := object.GetGeneration(); generation > 0 && !isSize(object) {
		return fmt.Sprint("generation ", generation)
	}
	return object.GetResourceVersion()
}

func hashOf(object *unstructured.Unstructured) (string, error) {
	content, err := json.Marshal(object.Object)
	if err != nil {
		return "", fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
