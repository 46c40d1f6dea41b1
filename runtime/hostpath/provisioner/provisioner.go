// Package provisioner makes the node's volumes for claims and removes them: those
// claims whose pod the scheduler placed on this node, those volumes that are bound to it.
package provisioner

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// annotationNode names the node that the scheduler chose for a claim's first pod.
const annotationNode = "volume.kubernetes.io/selected-node"

// parameterPool is the attribute of a volume that names its pool.
const parameterPool = "storagePool"

// Volumes makes and removes volumes: the driver's controller service.
type Volumes interface {
	CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error)
	DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error)
	// HasPool returns an error when the node does not have the pool of that name.
	HasPool(pool string) error
}

// Options are the facts that a Provisioner works with.
type Options struct {
	// Driver is the driver's name.
	Driver string
	// NodeName is the node's name, TopologyKey the label that volumes are bound to it by.
	NodeName, TopologyKey string
}

// Provisioner is what the provisioning library calls. Use New.
type Provisioner struct {
	options   Options
	client    kubernetes.Interface
	snapshots client.Reader
	volumes   Volumes
}

// New returns a Provisioner of volumes, some of them from snapshots, a kind that a cluster may not have.
func New(client kubernetes.Interface, snapshots client.Reader, volumes Volumes, options Options) *Provisioner {
	return &Provisioner{options: options, client: client, snapshots: snapshots, volumes: volumes}
}

var (
	_ controller.BlockProvisioner = &Provisioner{}
	_ controller.Qualifier        = &Provisioner{}
	_ controller.DeletionGuard    = &Provisioner{}
)

// SupportsBlock says that claims may ask for block volumes.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// ShouldProvision tells whether a claim is this node's.
func (p *Provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[annotationNode] == p.options.NodeName
}

// ShouldDelete tells whether a volume is this node's.
func (p *Provisioner) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	return volume.Spec.CSI != nil && volume.Spec.CSI.Driver == p.options.Driver &&
		NodeOf(volume, p.options.TopologyKey) == p.options.NodeName
}

// Provision makes the volume for a claim.
func (p *Provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	volume, err := p.provision(ctx, options)
	if err != nil {
		state, err := outcome(err)
		return nil, state, err
	}
	return persistentVolume(p.options.Driver, options, volume), controller.ProvisioningFinished, nil
}

func (p *Provisioner) provision(ctx context.Context, options controller.ProvisionOptions) (*csi.Volume, error) {
	if options.PVC.Spec.Selector != nil {
		return nil, refuse(codes.InvalidArgument, "a claim with a selector cannot be provisioned: leave spec.selector out")
	}
	source, err := p.source(ctx, options.PVC)
	if err != nil {
		return nil, err
	}
	req, err := request(options.PVName, options.PVC, options.StorageClass, source)
	if err != nil {
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	response, err := p.volumes.CreateVolume(ctx, req)
	if err != nil {
		return nil, err //nolint:wrapcheck // its text is the event's, its code decides what comes next
	}
	return response.GetVolume(), nil
}

// Delete removes the data of a volume.
func (p *Provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	err := p.delete(ctx, volume.Spec.CSI)
	if err != nil {
		_, err = outcome(err)
	}
	return err
}

// delete has the driver delete a volume, whose pool it has to know: in one that the node has no more, or does not know yet, it
// would miss the volume as if it were gone, and its data would stay for ever.
func (p *Provisioner) delete(ctx context.Context, volume *corev1.CSIPersistentVolumeSource) error {
	if pool := volume.VolumeAttributes[parameterPool]; pool != "" {
		if err := p.volumes.HasPool(pool); err != nil {
			return err //nolint:wrapcheck // as in provision
		}
	}
	_, err := p.volumes.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume.VolumeHandle})
	return err //nolint:wrapcheck // as in provision
}
