// Package legacy keeps the volumes of the provisioner that the field had before the CSI driver:
// each a directory of the node that pods have as a hostPath. It makes them for the claims
// of StorageClasses that still name it, and removes them with their claims, those that
// the former program made, too. Nothing of them but what is here needs a program: pods
// and the kubelet use them without.
package legacy

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// Annotations: of a claim, the node that the scheduler chose for its first pod; of a volume, who made it.
const (
	annotationSelectedNode = "volume.kubernetes.io/selected-node"
	annotationIdentity     = "hostPathProvisionerIdentity"
)

// directory is what errors call the directory that holds the volumes.
const directory = "pathConfig"

// Config is where the volumes are, as the HostPathProvisioner's pathConfig says.
type Config struct {
	// Path is the absolute path of the directory on the node that holds the volumes' own.
	Path string
	// UseNamingPrefix puts the claim's name before the volume's in the name of a directory.
	UseNamingPrefix bool
	// Hostname is the node's label kubernetes.io/hostname, by which pods find their volume.
	Hostname string
}

// Options are the facts that a Provisioner works with.
type Options struct {
	// NodeName is the node's name.
	NodeName string
	// HostRoot is where the node's file system is mounted, "/" on the node itself.
	HostRoot string
	// Config returns where the volumes are now; false: there is no such directory any more.
	Config func() (Config, bool)
	// Log hears what is made and removed.
	Log logr.Logger
}

// Provisioner is what the provisioning library calls. Use New.
type Provisioner struct{ options Options }

// New returns a Provisioner of a node's volumes.
func New(options Options) *Provisioner { return &Provisioner{options} }

var (
	_ controller.BlockProvisioner = &Provisioner{}
	_ controller.Qualifier        = &Provisioner{}
	_ controller.DeletionGuard    = &Provisioner{}
)

// SupportsBlock has the library ask for block volumes, too, which are then refused with what to do.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// ShouldProvision tells whether a claim is this node's: it names the node itself, or the
// scheduler chose it.
func (p *Provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	if named, ok := claim.Annotations[names.AnnotationProvisionOnNode]; ok {
		return named == p.options.NodeName
	}
	return claim.Annotations[annotationSelectedNode] == p.options.NodeName
}

// ShouldDelete tells whether a volume is one of these, and this node's.
func (p *Provisioner) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	return volume.Spec.HostPath != nil && volume.Annotations[annotationIdentity] == names.LegacyHostPathDriver &&
		volume.Annotations[names.AnnotationProvisionOnNode] == p.options.NodeName
}

// Provision makes the directory for a claim.
func (p *Provisioner) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if err := servable(options); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	config, ok := p.options.Config()
	if !ok {
		return nil, controller.ProvisioningFinished, errors.New("no HostPathProvisioner with pathConfig is for this node: ask for another StorageClass, or select the node again")
	}
	if config.Hostname != p.options.NodeName {
		return nil, controller.ProvisioningFinished, fmt.Errorf("the label %s of node %s is %q, by which no pod would find the volume: ask for a StorageClass of %s",
			corev1.LabelHostname, p.options.NodeName, config.Hostname, names.HostPathDriver)
	}
	volume := persistentVolume(config, options)
	if err := p.make(config, volume); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	p.options.Log.Info("Made a volume of the legacy provisioner", "volume", volume.Name, "path", volume.Spec.HostPath.Path)
	return volume, controller.ProvisioningFinished, nil
}

func (p *Provisioner) make(config Config, volume *corev1.PersistentVolume) error {
	held, err := p.open(config)
	if err != nil {
		return err
	}
	defer p.close(held)
	space, err := held.Space()
	if err != nil {
		return fmt.Errorf("asking for the room of %s: %w", config.Path, err)
	}
	size := volume.Spec.Capacity.Storage().Value()
	if size > space.Total {
		return fmt.Errorf("the volume is to have %d bytes, all of %s on node %s has %d: ask for less, or use a larger disk",
			size, config.Path, p.options.NodeName, space.Total)
	}
	if err := held.MakeDirectory(path.Base(volume.Spec.HostPath.Path), size); err != nil {
		return fmt.Errorf("making the volume in %s on node %s: %w", config.Path, p.options.NodeName, err)
	}
	return nil
}

// Delete removes the directory of a volume, if it is one that this provisioner, or the former, makes.
func (p *Provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	config, ok := p.options.Config()
	if !ok {
		return fmt.Errorf("no HostPathProvisioner with pathConfig is for node %s any more: remove %s there, then delete the volume", p.options.NodeName, volume.Spec.HostPath.Path)
	}
	name, err := directoryOf(config, volume)
	if err != nil {
		return err
	}
	held, err := p.open(config)
	if err != nil {
		return err
	}
	defer p.close(held)
	if err := held.RemoveDirectory(name); err != nil {
		return fmt.Errorf("removing the volume from %s on node %s: %w", config.Path, p.options.NodeName, err)
	}
	p.options.Log.Info("Removed a volume of the legacy provisioner", "volume", volume.Name, "path", volume.Spec.HostPath.Path)
	return nil
}

// directoryOf is the name of a volume's directory. What lies elsewhere, or is called otherwise than the
// volumes are, is never removed: a PersistentVolume can name any path of the node.
func directoryOf(config Config, volume *corev1.PersistentVolume) (string, error) {
	at := volume.Spec.HostPath.Path
	folder, name := path.Split(path.Clean(at))
	own := name == volume.Name || strings.HasSuffix(name, "-"+volume.Name)
	if path.Clean(folder) != config.Path || !own || !strings.HasPrefix(volume.Name, volumePrefix) {
		return "", fmt.Errorf("%s is no directory that the provisioner makes for volume %s in %s: remove it on its node, then delete the volume", at, volume.Name, config.Path)
	}
	return name, nil
}

func (p *Provisioner) open(config Config) (*pool.Pool, error) {
	held, err := pool.Open(p.options.HostRoot, directory, config.Path)
	if errors.Is(err, pool.ErrMissing) {
		return nil, fmt.Errorf("the directory %s of the HostPathProvisioner's pathConfig does not exist on node %s: create it there, or mount its disk", config.Path, p.options.NodeName)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the directory of the HostPathProvisioner's pathConfig: %w", err)
	}
	return held, nil
}

func (p *Provisioner) close(held *pool.Pool) {
	if err := held.Close(); err != nil {
		p.options.Log.Error(err, "Closing failed")
	}
}
