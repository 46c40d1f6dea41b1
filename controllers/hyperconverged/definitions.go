package hyperconverged

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/internal/names"
)

// annotationContent is in every generated definition: the hash of its content.
const annotationContent = names.Domain + "content"

// Groups that others may serve: where someone does already, our definitions are not installed.
// OpenShift itself serves templates, KubeVirt's own template server VirtualMachineTemplates, and any
// snapshot controller brings the kinds of snapshots.
const (
	groupTemplate   = "template.openshift.io"
	groupVMTemplate = "template.kubevirt.io"
	groupSnapshot   = "snapshot.storage.k8s.io"
)

const hyperConvergedDefinition = "hyperconvergeds.hco.kubevirt.io"

// kubeVirtDefinition is that of the object of which clients ask what is installed.
const kubeVirtDefinition = "kubevirts.kubevirt.io"

// cdiDefinition is that of the object that says the same of disks.
const cdiDefinition = "cdis.cdi.kubevirt.io"

// definition is one embedded CustomResourceDefinition, as the bytes that are applied:
// the API server parses YAML, so that this program need not.
type definition struct {
	name    string // <plural>.<group>
	group   string
	hash    string
	content []byte
}

// optional says that others may serve the kind, which is no conflict.
func (d definition) optional() bool {
	return d.group == groupTemplate || d.group == groupVMTemplate || d.group == groupSnapshot
}

// definitions returns the embedded definitions in the order of their names, the same to every caller.
var definitions = sync.OnceValues(readDefinitions)

func readDefinitions() ([]definition, error) {
	files, err := components.Definitions()
	if err != nil {
		return nil, fmt.Errorf("opening the embedded definitions: %w", err)
	}
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the embedded definitions: %w", err)
	}
	all := make([]definition, 0, len(paths))
	for _, path := range paths {
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, fmt.Errorf("reading the embedded definition %s: %w", path, err)
		}
		group, plural, found := strings.Cut(strings.TrimSuffix(path, ".yaml"), "_")
		if !found {
			return nil, fmt.Errorf("the embedded definition %s is not named <group>_<plural>.yaml", path)
		}
		all = append(all, definition{name: plural + "." + group, group: group, hash: annotated(content), content: content})
	}
	return all, nil
}

// annotated returns the hash in the first lines of a generated definition.
func annotated(content []byte) string {
	head, _, _ := strings.Cut(string(content[:min(len(content), 1024)]), "\nspec:")
	_, value, found := strings.Cut(head, annotationContent+": ")
	if !found {
		return ""
	}
	value, _, _ = strings.Cut(value, "\n")
	return strings.TrimSpace(value)
}

// foreignDefinitions returns what another installation has defined of our kinds, a sentence each.
func foreignDefinitions(ctx context.Context, reader client.Reader) ([]string, error) {
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	var foreign []string
	for _, d := range all {
		if d.optional() {
			continue
		}
		live, err := liveDefinition(ctx, reader, d.name)
		if err != nil {
			return nil, err
		}
		if live != nil && !isOurs(live) {
			foreign = append(foreign, fmt.Sprintf("CustomResourceDefinition %s is not managed by Slipway", d.name))
		}
	}
	return foreign, nil
}

func isOurs(object client.Object) bool {
	return object.GetLabels()[names.LabelManagedBy] == names.ManagedBy
}

// liveDefinition returns the metadata of a definition, nil when there is none.
func liveDefinition(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err := reader.Get(ctx, types.NamespacedName{Name: name}, live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	return live, nil
}

// applyDefinitions applies the definitions that differ from what the cluster has.
func applyDefinitions(ctx context.Context, c client.Client, reader client.Reader) error {
	all, err := definitions()
	if err != nil {
		return err
	}
	return applyThese(ctx, c, reader, all)
}

// applyThese applies those of some definitions that differ, unless they are another installation's.
func applyThese(ctx context.Context, c client.Client, reader client.Reader, some []definition) error {
	for _, d := range some {
		live, err := liveDefinition(ctx, reader, d.name)
		if err != nil {
			return err
		}
		if live != nil && (live.GetAnnotations()[annotationContent] == d.hash || !isOurs(live)) {
			continue
		}
		if live == nil && d.optional() {
			taken, err := taken(ctx, c, reader, d.group)
			if err != nil {
				return err
			}
			if taken {
				continue
			}
		}
		log.FromContext(ctx).Info("applying definition", "definition", d.name)
		target := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: d.name}}
		// The embedded YAML is sent as it is: parsing it here would cost more memory than all the rest.
		patch := client.RawPatch(types.ApplyYAMLPatchType, d.content)
		if err := c.Patch(ctx, target, patch, client.FieldOwner(names.ManagerOperator), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying CustomResourceDefinition %s: %w", d.name, err)
		}
	}
	return nil
}

// taken says whether somebody else serves any kind of an optional group.
func taken(ctx context.Context, c client.Client, reader client.Reader, group string) (bool, error) {
	if group == groupTemplate { // OpenShift serves it without a definition
		_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: "Template"})
		return err == nil, nil
	}
	all, err := definitions()
	if err != nil {
		return false, err
	}
	for _, d := range all {
		if d.group != group {
			continue
		}
		live, err := liveDefinition(ctx, reader, d.name)
		if err != nil {
			return false, err
		}
		if live != nil && !isOurs(live) {
			return true, nil
		}
	}
	return false, nil
}

func only(all []definition, name string) []definition {
	var kept []definition
	for _, d := range all {
		if d.name == name {
			kept = append(kept, d)
		}
	}
	return kept
}
