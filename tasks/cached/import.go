package cached

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Make creates a DataVolume, or takes up the one that an earlier try of the run made, waits until
// it has succeeded, and returns it as it is then.
type Make func(context.Context, *cdiv1.DataVolume) (*cdiv1.DataVolume, error)

// Import makes an imported DataVolume as a clone of its cached result, or else by an import, and
// writes the results digest and cached. An error of the import is returned as it is.
func Import(ctx context.Context, call *declare.Call, dv *cdiv1.DataVolume, work Make) (*cdiv1.DataVolume, error) {
	options, err := Read(call)
	if err != nil {
		return nil, err
	}
	i := &importRun{dv: dv, call: call, store: Store(call), options: options, begun: time.Now(), work: work}
	made, err := i.run(ctx)
	if err != nil {
		return made, err
	}
	return made, errors.Join(call.Result(ResultDigest, i.digest), call.Result(ResultCached, fmt.Sprint(i.hit)))
}

// importRun is one run of Import.
type importRun struct {
	dv      *cdiv1.DataVolume
	call    *declare.Call
	store   *stepcache.Store
	options Options
	begun   time.Time
	work    Make

	digest string
	hit    bool
}

func (i *importRun) run(ctx context.Context) (*cdiv1.DataVolume, error) {
	if i.options.Mode == Off {
		return i.work(ctx, i.dv)
	}
	key, err := i.key(ctx)
	if err != nil {
		i.store.Log.Info("the step cache is not used", "cause", err.Error())
		return i.plain(ctx)
	}
	for {
		entry, lock, err := i.store.Take(ctx, stepcache.Query{Key: key, Since: i.options.Since(i.begun), Class: Class(i.dv), Mode: VolumeMode(i.dv)})
		if err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("looking into the step cache: %w", err)
			}
			i.store.Log.Warn("the step cache is not used", "cause", err.Error())
			return i.plain(ctx)
		}
		if entry == nil {
			defer release(ctx, i.store.Log, lock)
			return i.importAndKeep(ctx, key, lock)
		}
		made, err := i.clone(ctx, entry)
		if err == nil {
			i.digest, i.hit = entry.Digest, true
			i.store.Log.Info("taken from the step cache", "entry", entry.Name, "of", entry.Filled, "run", entry.Run)
			return made, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		i.store.Log.Warn("the entry of the step cache is not used", "entry", entry.Name, "cause", err.Error())
		if made != nil {
			if err := Discard(ctx, i.call.Client, made); err != nil {
				return nil, err
			}
		}
		if !errors.Is(err, stepcache.ErrPoisoned) {
			return i.plain(ctx)
		}
		if err := i.store.Remove(ctx, entry); err != nil {
			return nil, err
		}
	}
}

// key computes the import's key as the server tells it now.
func (i *importRun) key(ctx context.Context) (stepcache.Key, error) {
	from, ok := stepcache.ImportOf(i.dv)
	switch {
	case !ok:
		return "", fmt.Errorf("%w: only what is imported from a URL is", stepcache.ErrUncacheable)
	case i.dv.Namespace != i.call.Namespace:
		return "", fmt.Errorf("%w: its namespace %s is not the run's", stepcache.ErrUncacheable, i.dv.Namespace)
	}
	from, err := from.Probed(ctx)
	if err != nil {
		return "", err
	}
	return from.Key()
}

// plain imports without the cache.
func (i *importRun) plain(ctx context.Context) (*cdiv1.DataVolume, error) {
	made, err := i.work(ctx, i.dv.DeepCopy())
	if err == nil {
		i.digest = i.imported(ctx, made)
	}
	return made, err
}

// importAndKeep imports, and keeps the result when the server had the same file all the time.
func (i *importRun) importAndKeep(ctx context.Context, key stepcache.Key, lock *stepcache.Lock) (*cdiv1.DataVolume, error) {
	made, err := i.plain(ctx)
	if err != nil {
		return made, err
	}
	after, err := i.key(ctx)
	switch {
	case err != nil:
		i.store.Log.Warn("the import's result is not kept", "cause", err.Error())
	case after != key:
		i.store.Log.Warn("the import's result is not kept", "cause", "the server has another version of the file than when the import began")
	case i.digest == "":
		i.store.Log.Warn("the import's result is not kept", "cause", "its claim has no digest")
	case made.Spec.Source == nil || made.Spec.Source.HTTP == nil:
		// An earlier try of this run made it as a clone of an entry.
	default:
		save(ctx, i.store, lock, stepcache.Result{Step: "import " + i.dv.Spec.Source.HTTP.URL, Claim: made.Name, Digest: i.digest})
	}
	return made, nil
}

// clone makes the DataVolume as a clone of the entry.
func (i *importRun) clone(ctx context.Context, entry *stepcache.Entry) (*cdiv1.DataVolume, error) {
	host, err := Host(ctx, i.store)
	if err != nil {
		return nil, err
	}
	return Clone(ctx, i.store, host, entry, func(ctx context.Context) (*cdiv1.DataVolume, error) {
		return i.work(ctx, stepcache.Restored(i.dv, entry))
	})
}

// imported returns the digest that the importer left on the claim.
func (i *importRun) imported(ctx context.Context, made *cdiv1.DataVolume) string {
	claim := &corev1.PersistentVolumeClaim{}
	if err := i.store.Client.Get(ctx, client.ObjectKeyFromObject(made), claim); err != nil {
		i.store.Log.Warn("the disk's digest is not known", "cause", err.Error())
	}
	return claim.Annotations[names.AnnotationDigest]
}

// Class is the storage class that a DataVolume names itself; empty for the cluster's default.
func Class(dv *cdiv1.DataVolume) string {
	switch {
	case dv.Spec.PVC != nil && dv.Spec.PVC.StorageClassName != nil:
		return *dv.Spec.PVC.StorageClassName
	case dv.Spec.Storage != nil && dv.Spec.Storage.StorageClassName != nil:
		return *dv.Spec.Storage.StorageClassName
	}
	return ""
}

// VolumeMode is the volume mode that a DataVolume asks for.
func VolumeMode(dv *cdiv1.DataVolume) corev1.PersistentVolumeMode {
	switch {
	case dv.Spec.PVC != nil && dv.Spec.PVC.VolumeMode != nil:
		return *dv.Spec.PVC.VolumeMode
	case dv.Spec.Storage != nil && dv.Spec.Storage.VolumeMode != nil && *dv.Spec.Storage.VolumeMode != cdiv1.PersistentVolumeFromStorageProfile:
		return *dv.Spec.Storage.VolumeMode
	}
	return corev1.PersistentVolumeFilesystem
}
