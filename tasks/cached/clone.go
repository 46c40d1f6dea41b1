package cached

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/stepcache"
)

// Clone makes a clone of the entry by work, and has the entry's content read meanwhile: with
// stepcache.ErrPoisoned neither is of any use. What was made is returned with an error, too.
func Clone(ctx context.Context, store *stepcache.Store, host *stepcache.Host, entry *stepcache.Entry,
	work func(context.Context) (*cdiv1.DataVolume, error),
) (*cdiv1.DataVolume, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	verified := make(chan error, 1)
	go func() { verified <- store.Verify(ctx, host, entry) }()
	made, err := work(ctx)
	if err != nil {
		stop()
		return made, errors.Join(err, <-verified)
	}
	return made, <-verified
}

// Discard deletes a DataVolume that is of no use, and waits until its claim is gone, too.
func Discard(ctx context.Context, c client.WithWatch, dv *cdiv1.DataVolume) error {
	key := client.ObjectKeyFromObject(dv)
	if err := c.Delete(ctx, dv); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DataVolume %s: %w", key, err)
	}
	err := await.Object(ctx, c, &cdiv1.DataVolumeList{}, key, func(_ *cdiv1.DataVolume, exists bool) (bool, error) { return !exists, nil })
	if err == nil {
		err = await.Object(ctx, c, &corev1.PersistentVolumeClaimList{}, key, func(_ *corev1.PersistentVolumeClaim, exists bool) (bool, error) { return !exists, nil })
	}
	if err != nil {
		return fmt.Errorf("waiting until DataVolume %s is gone: %w", key, err)
	}
	return nil
}
