package virtualmachinesnapshot

import (
	"context"
	"fmt"
	"strings"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// classOf is the VolumeSnapshotClass for claims of a StorageClass: the only one of its driver, or the driver's default. It is ""
// when there is none: no snapshots can be taken of such claims.
func (r *Reconciler) classOf(ctx context.Context, storage *string) (string, error) {
	if storage == nil || *storage == "" {
		return "", nil
	}
	class := &storagev1.StorageClass{}
	if found, err := r.get(ctx, client.ObjectKey{Name: *storage}, class); err != nil || !found {
		return "", err
	}
	all := &csiv1.VolumeSnapshotClassList{}
	if err := r.live.List(ctx, all); err != nil {
		return "", fmt.Errorf("listing VolumeSnapshotClasses: %w", err)
	}
	return chosen(all.Items, class)
}

// chosen is the class of classes that suits storage.
func chosen(classes []csiv1.VolumeSnapshotClass, storage *storagev1.StorageClass) (string, error) {
	var matching, defaults []string
	for i := range classes {
		class := &classes[i]
		if class.Driver != storage.Provisioner {
			continue
		}
		matching = append(matching, class.Name)
		if class.Annotations[annotationDefault] == "true" {
			defaults = append(defaults, class.Name)
		}
	}
	switch {
	case len(matching) == 0:
		return "", nil
	case len(matching) == 1:
		return matching[0], nil
	case len(defaults) == 1:
		return defaults[0], nil
	}
	return "", fail("%d matching VolumeSnapshotClasses for %s: %s; annotate the one to take with %s=true",
		len(matching), storage.Name, strings.Join(matching, ", "), annotationDefault)
}
