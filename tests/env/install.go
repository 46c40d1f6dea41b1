package env

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// Namespaces that get the provisioning tasks. Each has a step cache of its own, so what is run side
// by side and removes its entries has one for itself.
const (
	NamespaceDemo       = "slipway-demo"
	NamespaceTasks      = "slipway-e2e-tasks"
	NamespacePipelines  = "slipway-e2e-pipelines"
	NamespacePublishing = "slipway-e2e-publishing"
)

// tektonNamespaces are all of them.
var tektonNamespaces = []string{NamespaceDemo, NamespaceTasks, NamespacePipelines, NamespacePublishing}

// StorageClass is the class of the node storage's first pool.
const StorageClass = "hostpath-csi"

// manager is the field manager of what this package applies.
const manager = "slipway-env"

// KubeVirtPatch is the patch of the KubeVirt object that Install sets: how the field lets guests run without KVM.
const KubeVirtPatch = `[{"op":"add","path":"/spec/configuration/developerConfiguration","value":{"useEmulation":true}}]`

// Bounds of the waits of an installation.
const (
	boundInstall = 10 * time.Minute
	boundStorage = 5 * time.Minute
)

// Install installs Slipway by its one file and one object, and node storage by another, and
// waits until all of it is available. It is safe to repeat, and then upgrades.
func (c *Cluster) Install(ctx context.Context, out io.Writer) error {
	if err := c.applyManifest(ctx, out); err != nil {
		return err
	}
	for _, namespace := range tektonNamespaces {
		if err := c.Namespace(ctx, namespace); err != nil {
			return err
		}
	}
	hco := &hcov1.HyperConverged{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName},
		Spec:       hcov1.HyperConvergedSpec{WorkloadSources: hcov1.WorkloadSources{TektonNamespaces: tektonNamespaces}},
	}
	bringsImages, err := c.bringsBootImages(ctx)
	if err != nil {
		return err
	}
	if bringsImages {
		hco.Spec.WorkloadSources.EnableCommonBootImageImport = new(false) // nothing is fetched from the internet
	}
	if err := c.retry(ctx, out, hco, boundInstall, c.applyHyperConverged); err != nil {
		return fmt.Errorf("asking the operator for Slipway: %w", err)
	}
	if err := c.replaced(ctx, out); err != nil {
		return fmt.Errorf("upgrading Slipway: %w", err)
	}
	err = c.Await(ctx, out, hco, boundInstall, func(obj client.Object) (string, bool, error) {
		found := obj.(*hcov1.HyperConverged)
		current := found.Status.ObservedGeneration == found.Generation
		words := summary(found.Status.Conditions, "Available", "Progressing", "Degraded")
		return words, current && meta.IsStatusConditionTrue(found.Status.Conditions, "Available") &&
			!meta.IsStatusConditionTrue(found.Status.Conditions, "Progressing") &&
			!meta.IsStatusConditionTrue(found.Status.Conditions, "Degraded"), nil
	})
	if err != nil {
		return fmt.Errorf("installing Slipway: %w", err)
	}
	return c.installStorage(ctx, out)
}

// applyHyperConverged applies the HyperConverged object with the patch of the KubeVirt object. What a suite that runs beside
// has added to that, or takes out of it at this moment, stays so: an object that there is is written as it was read, or else
// the API server answers Conflict.
func (c *Cluster) applyHyperConverged(ctx context.Context, obj client.Object) error {
	hco, there := obj.(*hcov1.HyperConverged), &hcov1.HyperConverged{}
	patch := KubeVirtPatch
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(hco), there)
	if apierrors.IsNotFound(err) {
		hco.Annotations = map[string]string{hcov1.AnnotationKubeVirtPatch: patch}
		return apply.Object(ctx, c.Client, hco, manager)
	}
	if err != nil {
		return fmt.Errorf("reading the HyperConverged object: %w", err)
	}
	if now := there.Annotations[hcov1.AnnotationKubeVirtPatch]; strings.HasPrefix(now, strings.TrimSuffix(patch, "]")) {
		patch = now
	}
	return apply.Fields(ctx, c.Client, there, manager, map[string]any{
		"metadata": map[string]any{
			"resourceVersion": there.ResourceVersion, "annotations": map[string]string{hcov1.AnnotationKubeVirtPatch: patch},
		},
		"spec": hco.Spec,
	})
}

// bringsBootImages says whether the build whose manifest was applied has common boot images to
// switch off. A former one, which is installed to be upgraded, may refuse to hear of them.
func (c *Cluster) bringsBootImages(ctx context.Context) (bool, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "hyperconvergeds." + hcov1.GroupVersion.Group}, definition); err != nil {
		return false, fmt.Errorf("reading the definition of HyperConverged: %w", err)
	}
	for _, version := range definition.Spec.Versions {
		if version.Name != hcov1.GroupVersion.Version || version.Schema == nil {
			continue
		}
		sources := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["workloadSources"].Properties
		if _, known := sources["enableCommonBootImageImport"]; known {
			return true, nil
		}
	}
	return false, nil
}

// retryApply applies obj as soon as the API server knows its kind, which the operator teaches it.
func (c *Cluster) retryApply(ctx context.Context, out io.Writer, obj client.Object, bound time.Duration) error {
	return c.retry(ctx, out, obj, bound, func(ctx context.Context, obj client.Object) error { return apply.Object(ctx, c.Client, obj, manager) })
}

// retry has write write obj as soon as the API server knows its kind, and again where somebody wrote it meanwhile.
func (c *Cluster) retry(ctx context.Context, out io.Writer, obj client.Object, bound time.Duration, write func(context.Context, client.Object) error) error {
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for first := true; ; first = false {
		err := write(bounded, obj)
		if err == nil {
			return nil
		}
		refusable := meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
			apierrors.IsConflict(err)
		if !refusable {
			return err
		}
		if first {
			fmt.Fprintf(out, "waiting until the API server takes a %T, at most %s: %v\n", obj, bound, err)
		}
		select {
		case <-bounded.Done():
			c.Dump(context.WithoutCancel(ctx), out, names.InstallNamespace)
			return fmt.Errorf("%w; the last answer: %w", bounded.Err(), err)
		case <-ticker.C:
		}
	}
}

// applyManifest applies the one file that installs the operator.
func (c *Cluster) applyManifest(ctx context.Context, out io.Writer) error {
	images, err := c.Images()
	if err != nil {
		return err
	}
	args := []string{
		"run", "./cmd/slipway", "manifest", "--image", images["slipway"].Ref,
		"--launcher-image", images["slipway-launcher"].Ref, "--guestfs-image", images["slipway-guestfs"].Ref,
	}
	if c.Local.KubeletRoot != "" {
		args = append(args, "--kubelet-root", c.Local.KubeletRoot)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = c.Root, os.Stderr
	manifest, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("making the manifest of the operator: %w", err)
	}
	fmt.Fprintf(out, "applying the operator's manifest with image %s\n", images["slipway"].Ref)
	return c.ApplyYAML(ctx, manifest, "")
}

// ApplyFile applies the objects of a file of the checkout, into namespace where they name none.
func (c *Cluster) ApplyFile(ctx context.Context, path, namespace string) error {
	data, err := os.ReadFile(filepath.Join(c.Root, path))
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := c.ApplyYAML(ctx, data, namespace); err != nil {
		return fmt.Errorf("applying %s: %w", path, err)
	}
	return nil
}

// ApplyYAML applies the objects of a YAML stream, into namespace where they name none.
func (c *Cluster) ApplyYAML(ctx context.Context, data []byte, namespace string) error {
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading YAML: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return fmt.Errorf("reading YAML: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if namespace != "" && object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		if err := apply.Object(ctx, c.Client, object, manager); err != nil {
			return err
		}
	}
}

// Namespace makes a namespace, when it does not exist.
func (c *Cluster) Namespace(ctx context.Context, name string) error {
	return apply.Object(ctx, c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, manager)
}

// installStorage makes a pool of node storage on the local cluster's reflink file system, or on
// an existing cluster at POOL_PATH.
func (c *Cluster) installStorage(ctx context.Context, out io.Writer) error {
	path := c.Local.PoolPath
	if c.Existing {
		path = os.Getenv("POOL_PATH")
		if path == "" {
			path = "/var/lib/slipway/pool"
		}
	}
	hpp := &hppv1beta1.HostPathProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: "hostpath-provisioner"},
		Spec:       hppv1beta1.HostPathProvisionerSpec{StoragePools: []hppv1beta1.StoragePool{{Name: "local", Path: path}}},
	}
	if err := c.retryApply(ctx, out, hpp, boundStorage); err != nil {
		return fmt.Errorf("asking for node storage: %w", err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: StorageClass}}
	return c.Await(ctx, out, class, boundStorage, func(client.Object) (string, bool, error) { return "present", true, nil })
}

// summary says the named conditions in a few words.
func summary(conditions []metav1.Condition, kinds ...string) string {
	words := ""
	for _, kind := range kinds {
		found := meta.FindStatusCondition(conditions, kind)
		if found == nil {
			continue
		}
		if words != "" {
			words += ", "
		}
		words += kind + "=" + string(found.Status)
		if found.Message != "" && (found.Status == "True") != (kind == "Available") {
			words += " (" + found.Message + ")"
		}
	}
	if words == "" {
		return "without conditions"
	}
	return words
}
