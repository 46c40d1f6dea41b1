package virtualmachinesnapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// classOf is classOf, past the caches.
func (r *Reconciler) classOf(ctx context.Context, storage *string) (string, error) {
	return classOf(ctx, r.live, storage)
}

// classOf is the VolumeSnapshotClass for claims of a StorageClass: the only one of its driver, or the driver's default. It is ""
// when there is none: no snapshots can be taken of such claims.
func classOf(ctx context.Context, from client.Reader, storage *string) (string, error) {
	if storage == nil || *storage == "" {
		return "", nil
	}
	class := &storagev1.StorageClass{}
	if err := from.Get(ctx, client.ObjectKey{Name: *storage}, class); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("reading StorageClass %s: %w", *storage, err)
	}
	all := &csiv1.VolumeSnapshotClassList{}
	if err := from.List(ctx, all); err != nil {
		return "", fmt.Errorf("listing VolumeSnapshotClasses: %w", err)
	}
	return chosen(all.Items, class)
}

// left names the volumes of vm that a snapshot of it would leave out: without have storage that takes no snapshots, of unknown
// the claim is not there. A storage with several classes is neither: the snapshot says what is wrong with them.
func left(ctx context.Context, from client.Reader, vm *virtv1.VirtualMachine) (without, unknown []string, err error) {
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		name := ClaimOf(&volume)
		if name == "" || volume.MemoryDump != nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		err := from.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, claim)
		if apierrors.IsNotFound(err) {
			unknown = append(unknown, volume.Name)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", vm.Namespace, name, err)
		}
		class, err := classOf(ctx, from, claim.Spec.StorageClassName)
		if _, several := errors.AsType[*problem](err); several {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if class == "" {
			without = append(without, volume.Name)
		}
	}
	return without, unknown, nil
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
