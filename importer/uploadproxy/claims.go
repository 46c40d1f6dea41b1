package uploadproxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

// readyWithin is how long a request waits for its claim's upload server.
const readyWithin = 10 * time.Second

// annotationPhase on a claim says how its filling ended.
const annotationPhase = "cdi.kubevirt.io/storage.pod.phase"

// Cluster finds claims by the API server.
type Cluster struct{ Client client.WithWatch }

// errAnother says that a token is for a claim that is gone, whose name another has by now.
var errAnother = errors.New("the token is for an earlier claim of the name; create another UploadTokenRequest")

// AwaitReady returns once the claim's upload server takes an image, and errs when it will not, or not soon. That of
// a claim that no DataVolume has is of what fills it; the claim says when it is ready.
func (c *Cluster) AwaitReady(ctx context.Context, wanted upload.Target) (upload.Target, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	claim, err := c.read(ctx, wanted)
	if err != nil {
		return wanted, err
	}
	if wanted.UID != "" && wanted.UID != claim.UID {
		return wanted, errAnother
	}
	if populated(claim) && !filled(claim) {
		wanted.Name = population.PrimeName(claim)
	}
	if ready, err := takes(claim); ready || err != nil {
		return wanted, err
	}
	return wanted, c.await(ctx, claim, upload.ServerName(wanted.Name))
}

func (c *Cluster) read(ctx context.Context, wanted upload.Target) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: wanted.Namespace, Name: wanted.Name}, claim)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("rejecting Upload Request for PVC %s that doesn't exist", wanted.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading PVC %s: %w", wanted.Name, err)
	}
	return claim, nil
}

// populated says whether a populator has the claim filled by an upload.
func populated(claim *corev1.PersistentVolumeClaim) bool {
	source := population.Source(claim)
	return source == cdiv1.VolumeUploadSourceRef || source == population.Target && !population.Withdrawn(claim)
}

func filled(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[annotationPhase] == string(corev1.PodSucceeded)
}

// await follows the claim from how it was read until pod server takes its image.
func (c *Cluster) await(ctx context.Context, claim *corev1.PersistentVolumeClaim, server string) error {
	changes, err := c.Client.Watch(ctx, &corev1.PersistentVolumeClaimList{}, &client.ListOptions{
		Namespace: claim.Namespace, FieldSelector: one(claim.Name),
		Raw: fromVersion(claim.ResourceVersion),
	})
	if err != nil {
		return fmt.Errorf("following PVC %s: %w", claim.Name, err)
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the upload server of PVC %s is not ready; look at the events of the claim and of pod %s, and try again", claim.Name, server)
		case change, ok := <-changes.ResultChan():
			if !ok {
				return fmt.Errorf("following PVC %s ended early; try again", claim.Name)
			}
			if change.Type == watch.Deleted {
				return fmt.Errorf("PVC %s was deleted", claim.Name)
			}
			if now, isClaim := change.Object.(*corev1.PersistentVolumeClaim); isClaim {
				if ready, err := takes(now); ready || err != nil {
					return err
				}
			}
		}
	}
}

// takes says whether the claim's upload server takes an image, and errs when it never will.
func takes(claim *corev1.PersistentVolumeClaim) (bool, error) {
	_, target := claim.Annotations[upload.AnnotationTarget]
	switch {
	case claim.DeletionTimestamp != nil: // a pod that uses it may keep it for a while
		return false, fmt.Errorf("PVC %s is being deleted", claim.Name)
	case populated(claim):
	case !target:
		return false, fmt.Errorf("PVC %s is not an upload target; create a DataVolume with the source upload, or a claim with a VolumeUploadSource or the annotation %s", claim.Name, upload.AnnotationTarget)
	case metav1.GetControllerOf(claim) == nil:
		return false, fmt.Errorf("PVC %s has a dataSource, which fills it; send the image to a claim without one", claim.Name)
	}
	if filled(claim) {
		return false, fmt.Errorf("rejecting Upload Request for PVC %s that already finished uploading", claim.Name)
	}
	if populated(claim) && !population.Chosen(claim) {
		return false, nil // what a copied claim says is of another
	}
	return claim.Annotations[upload.AnnotationReady] == "true", nil
}
