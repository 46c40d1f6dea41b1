package memorydump

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/memorydump"
)

// configName is the name of the cluster's one CDIConfig.
const configName = "config"

// claim is a claim to be made for a dump.
type claim struct{ name, class, access string }

// create makes the claim for the memory of the VM called machine, unless the VM has another.
func (c *claim) create(cmd *cobra.Command, cluster Cluster, machine string) error {
	access, err := c.accessMode()
	if err != nil {
		return err
	}
	cl, err := cluster.Client()
	if err != nil {
		return err //nolint:wrapcheck // it says what it was doing
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	size, err := c.size(cmd.Context(), cl, client.ObjectKey{Namespace: namespace, Name: machine})
	if err != nil {
		return err
	}
	object := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{access},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *size}},
		},
	}
	if c.class != "" {
		object.Spec.StorageClassName = &c.class
	}
	err = cl.Create(cmd.Context(), object)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("PVC %s/%s already exists, check if it should be created if not remove create flag", namespace, c.name) //nolint:staticcheck,revive // the field's own words
	}
	if err != nil {
		return fmt.Errorf("creating PersistentVolumeClaim %s: %w", c.name, err)
	}
	fmt.Fprintf(said(cmd), "PVC %s/%s created\n", namespace, c.name)
	return nil
}

func (c *claim) accessMode() (corev1.PersistentVolumeAccessMode, error) {
	switch mode := corev1.PersistentVolumeAccessMode(c.access); mode {
	case "":
		return corev1.ReadWriteOnce, nil
	case corev1.ReadWriteOnce, corev1.ReadWriteMany:
		return mode, nil
	case corev1.ReadOnlyMany:
		return "", errors.New("cannot dump memory to a readonly pvc, use either ReadWriteOnce or ReadWriteMany if supported")
	}
	return "", errors.New("invalid access mode, use either ReadWriteOnce or ReadWriteMany if supported")
}

// size is how big the claim must be, for a VM that has none yet.
func (c *claim) size(ctx context.Context, cl client.Client, key client.ObjectKey) (*resource.Quantity, error) {
	vm := &virtv1.VirtualMachine{}
	if err := cl.Get(ctx, key, vm); err != nil {
		return nil, fmt.Errorf("reading VirtualMachine %s: %w", key.Name, err)
	}
	if vm.Status.MemoryDumpRequest != nil {
		return nil, errors.New("please remove current memory dump association before creating a new claim for a new memory dump")
	}
	vmi := &virtv1.VirtualMachineInstance{}
	if err := cl.Get(ctx, key, vmi); err != nil {
		return nil, fmt.Errorf("reading VirtualMachineInstance %s, whose memory is to be dumped: %w", key.Name, err)
	}
	overhead, err := c.overhead(ctx, cl)
	if err != nil {
		return nil, err
	}
	return resource.NewQuantity(memorydump.ClaimSize(vmi, overhead), resource.BinarySI), nil
}

// overhead is the part of a claim that its file system needs, as the cluster has it.
func (c *claim) overhead(ctx context.Context, cl client.Client) (float64, error) {
	config := &cdiv1.CDIConfig{}
	err := cl.Get(ctx, client.ObjectKey{Name: configName}, config)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err): // not every cluster has it
		return memorydump.DefaultOverhead, nil
	case err != nil:
		return 0, fmt.Errorf("reading CDIConfig %s: %w", configName, err)
	case config.Status.FilesystemOverhead == nil:
		return memorydump.DefaultOverhead, nil
	}
	known, of := config.Status.FilesystemOverhead.StorageClass[c.class], c.class
	if known == "" {
		known, of = config.Status.FilesystemOverhead.Global, "all classes"
	}
	overhead, err := strconv.ParseFloat(string(known), 64)
	if err != nil {
		return 0, fmt.Errorf("reading the file system's overhead of %s in CDIConfig %s: %w", of, configName, err)
	}
	return overhead, nil
}
