package stepcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
)

// Run is who uses the cache: a TaskRun.
type Run struct {
	Namespace, Name string
	UID             types.UID
	// Owner is what the run's Leases go with; nil for nothing.
	Owner *metav1.OwnerReference
}

func (r Run) holder() string {
	if r.UID != "" {
		return string(r.UID)
	}
	return r.Namespace + "/" + r.Name
}

// Store is the cache of a namespace as one run sees it.
type Store struct {
	Client client.WithWatch
	Run    Run
	Log    *slog.Logger
	// Now is the clock; nil for the machine's.
	Now func() time.Time
	// Patience is how long a Lease that nobody renews is respected; zero for its duration.
	Patience time.Duration

	// from are the namespaces whose entries are looked at as well, refused the entries of theirs that
	// were found to be of no use.
	readFrom sync.Once
	from     []string
	refused  map[string]bool
}

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Store) patience() time.Duration {
	if s.Patience > 0 {
		return s.Patience
	}
	return leaseDuration
}

// Query is what a run looks for.
type Query struct {
	Key Key
	// Since is when the step was done at the earliest; zero for any time.
	Since time.Time
	// Class and Mode are those that the disk must have; empty for any.
	Class string
	Mode  corev1.PersistentVolumeMode
}

// Find returns the newest entry of the namespace that answers q, or nil.
func (s *Store) Find(ctx context.Context, q Query) (*Entry, error) {
	return s.findIn(ctx, s.Run.Namespace, q)
}

func (s *Store) findIn(ctx context.Context, namespace string, q Query) (*Entry, error) {
	var list cdiv1.DataVolumeList
	err := s.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{LabelState: string(Ready), LabelKey: q.Key.Label()})
	if err != nil {
		return nil, fmt.Errorf("looking for the entries of key %s: %w", q.Key.Short(), err)
	}
	found := slices.DeleteFunc(Entries(list.Items), func(e Entry) bool {
		return e.State != Ready || e.Going || e.Key != q.Key ||
			e.Filled.Before(q.Since) ||
			q.Class != "" && e.Class != q.Class || q.Mode != "" && e.Mode != q.Mode
	})
	if len(found) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(found, func(a, b Entry) int { return a.Filled.Compare(b.Filled) })
	return &newest, nil
}

// Use tells that the run takes the entry, which keeps it from the sweeper for Grace. It is false
// when the entry is gone meanwhile.
func (s *Store) Use(ctx context.Context, e *Entry) (bool, error) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, e.UID, AnnotationUsed, FormatTime(s.now()))
	err := s.Client.Patch(ctx, dv, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldManager))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err), err == nil && dv.DeletionTimestamp != nil:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("telling that entry %s is in use: %w", e.Name, err)
	}
	e.ResourceVersion = dv.ResourceVersion
	return true, nil
}

// Take returns the entry that answers q, in use; or, when there is none, the right to do the work.
// While another run has that right, it waits for that run's entry or end.
func (s *Store) Take(ctx context.Context, q Query) (*Entry, *Lock, error) {
	told := false
	for {
		entry, err := s.take(ctx, q)
		if entry != nil || err != nil {
			return entry, nil, err
		}
		lock, held, err := s.tryLock(ctx, q.Key)
		switch {
		case err != nil:
			return nil, nil, err
		case lock != nil:
			// The holder before may have finished since the first look.
			entry, err := s.take(ctx, q)
			if entry != nil || err != nil {
				return entry, nil, errors.Join(err, lock.Release(ctx))
			}
			return nil, lock, nil
		case held == nil:
			continue
		}
		if !told {
			s.Log.Info("waiting for another run that does the same step at this moment", "key", q.Key.Short(), "lease", held.Name)
			told = true
		}
		gone, err := s.awaitChange(ctx, held)
		if err != nil {
			return nil, nil, fmt.Errorf("waiting for another run that does the same step: %w", err)
		}
		if gone {
			s.Log.Info("the other run is gone; doing the step", "key", q.Key.Short())
			if err := s.evict(ctx, held); err != nil {
				return nil, nil, err
			}
		}
	}
}

// take finds an entry and tells that it is in use.
func (s *Store) take(ctx context.Context, q Query) (*Entry, error) {
	for {
		entry, err := s.FindOrBring(ctx, q)
		if entry == nil || err != nil {
			return nil, err
		}
		ok, err := s.Use(ctx, entry)
		if ok || err != nil {
			return entry, err
		}
	}
}

// Result is what a step left.
type Result struct {
	// Step says for people what the step was.
	Step string
	// Claim holds the disk, Digest names its content. Nothing may change it until Save returns.
	Claim  string
	Digest string
}

// Save makes an entry of the result: a clone of the claim that becomes ready once it is complete.
// The right to do the work must be the run's until then.
func (s *Store) Save(ctx context.Context, lock *Lock, result Result) (*Entry, error) {
	if err := s.dropEarlier(ctx, lock.Key); err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: s.Run.Namespace, Name: result.Claim}
	if err := s.Client.Get(ctx, key, claim); err != nil {
		return nil, fmt.Errorf("reading claim %s: %w", key, err)
	}
	if class := claim.Spec.StorageClassName; class != nil && *class == "" {
		return nil, fmt.Errorf("%w: claim %s has no storage class, so its volume was made by hand and nothing clones it", ErrNoClone, key)
	}
	dv := buildEntry(filling{key: lock.Key, step: result.Step, digest: result.Digest, source: claim, run: s.Run, now: s.now()})
	return s.fill(ctx, lock, dv)
}

// fill creates an entry and waits until it is ready. What does not become so is removed.
func (s *Store) fill(ctx context.Context, lock *Lock, dv *cdiv1.DataVolume) (*Entry, error) {
	if err := s.Client.Create(ctx, dv, client.FieldOwner(FieldManager)); err != nil {
		return nil, fmt.Errorf("creating the entry: %w", err)
	}
	s.Log.Info("keeping the step's result", "entry", dv.Name, "key", Key(dv.Annotations[AnnotationKey]).Short())
	err := s.unlessRefused(ctx, client.ObjectKeyFromObject(dv), func(ctx context.Context) error { return s.complete(ctx, lock, dv) })
	if err != nil {
		return nil, errors.Join(err, s.drop(ctx, dv))
	}
	entry, _ := newEntry(dv)
	return &entry, nil
}

// complete waits until the clone is whole and makes the entry ready, by one patch of the version that was seen whole.
func (s *Store) complete(ctx context.Context, lock *Lock, dv *cdiv1.DataVolume) error {
	if err := s.AwaitClone(ctx, dv); err != nil {
		return err
	}
	if lock != nil && !lock.Held() {
		return errLost
	}
	before := dv.DeepCopy()
	dv.Labels[LabelState] = string(Ready)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := s.Client.Patch(ctx, dv, patch, client.FieldOwner(FieldManager))
	if apierrors.IsConflict(err) {
		return s.complete(ctx, lock, dv) // its status changed meanwhile; look at it anew
	}
	if err != nil {
		return fmt.Errorf("making entry %s ready: %w", dv.Name, err)
	}
	return nil
}

// AwaitClone waits until the clone is whole; dv is then as it was seen last.
func (s *Store) AwaitClone(ctx context.Context, dv *cdiv1.DataVolume) error {
	key, uid, last := client.ObjectKeyFromObject(dv), dv.UID, "created"
	err := await.Object(ctx, s.Client, &cdiv1.DataVolumeList{}, key, func(now *cdiv1.DataVolume, exists bool) (bool, error) {
		if !exists || now.UID != uid || now.DeletionTimestamp != nil {
			return false, fmt.Errorf("DataVolume %s was deleted", key)
		}
		last = state(now)
		switch now.Status.Phase {
		case cdiv1.Succeeded:
			now.DeepCopyInto(dv)
			return true, nil
		case cdiv1.Failed:
			return false, fmt.Errorf("DataVolume %s failed: %s", key, last)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: DataVolume %s was last seen in phase %s", context.Cause(ctx), key, last)
	}
	return err
}

// state describes a DataVolume: its phase, and what its conditions say.
func state(dv *cdiv1.DataVolume) string {
	words := []string{string(dv.Status.Phase)}
	for _, c := range dv.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			words = append(words, c.Message)
		}
	}
	return strings.Join(words, "; ")
}

// dropEarlier removes what an earlier try of this run has left half-filled.
func (s *Store) dropEarlier(ctx context.Context, key Key) error {
	var list cdiv1.DataVolumeList
	err := s.Client.List(ctx, &list, client.InNamespace(s.Run.Namespace), client.MatchingLabels{LabelState: string(Filling), LabelKey: key.Label()})
	if err != nil {
		return fmt.Errorf("looking for what an earlier try has left: %w", err)
	}
	for n := range list.Items {
		// Who has the Lease is the only one who fills: whatever is there is left over.
		if err := s.drop(ctx, &list.Items[n]); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes an entry that must not be used again.
func (s *Store) Remove(ctx context.Context, e *Entry) error {
	s.refuse(e)
	return s.drop(ctx, &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID}})
}

// drop deletes a DataVolume, also when ctx has ended.
func (s *Store) drop(ctx context.Context, dv *cdiv1.DataVolume) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer stop()
	err := s.Client.Delete(ctx, dv, client.Preconditions{UID: &dv.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting entry %s: %w", dv.Name, err)
	}
	return nil
}
