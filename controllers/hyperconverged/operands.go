package hyperconverged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
	"github.com/slipway-vm/slipway/internal/names"
)

// featureGates is where the KubeVirt object has its feature gates.
const featureGates = "/spec/configuration/developerConfiguration/featureGates"

// logVerbosity is where it says how much components log.
const logVerbosity = "/spec/configuration/developerConfiguration/logVerbosity"

// operand is an object of the field's own API that the operator creates for clients to find.
type operand struct {
	object     *unstructured.Unstructured
	annotation string   // of HyperConverged: a JSON patch of this object
	acted      []string // paths that a patch may set, since something acts on them; with all below those that end in a slash
}

// operands returns the KubeVirt, the CDI and the SSP object as hco wants them.
func operands(hco *hcov1.HyperConverged, base render.Values) ([]*unstructured.Unstructured, error) {
	ssp, err := sspSpec(hco)
	if err != nil {
		return nil, err
	}
	kubevirt, err := kubeVirtSpec(hco)
	if err != nil {
		return nil, err
	}
	cdi, err := cdiSpec(hco)
	if err != nil {
		return nil, err
	}
	all := []operand{
		{
			object:     object(kubeVirtKind.GroupVersion().String(), "KubeVirt", base.Namespace, names.KubeVirtName, kubevirt),
			annotation: hcov1.AnnotationKubeVirtPatch,
			acted: []string{
				"/spec/infra/replicas", "/spec/infra/nodePlacement/", "/spec/workloads/nodePlacement/",
				"/spec/customizeComponents/patches", "/spec/customizeComponents/flags/", "/spec/imagePullSecrets",
				"/spec/configuration/apiConfiguration/restClient/rateLimiter/tokenBucketRateLimiter/", "/spec/configuration/webhookConfiguration/restClient/rateLimiter/tokenBucketRateLimiter/",
				"/spec/configuration/controllerConfiguration/restClient/rateLimiter/tokenBucketRateLimiter/", "/spec/configuration/handlerConfiguration/restClient/rateLimiter/tokenBucketRateLimiter/",
				"/spec/configuration/developerConfiguration/useEmulation", "/spec/configuration/commonInstancetypesDeployment/enabled",
				"/spec/configuration/vmStateStorageClass", "/spec/configuration/evictionStrategy", "/spec/configuration/obsoleteCPUModels/", featureGates,
				"/spec/configuration/machineType", "/spec/configuration/emulatedMachines",
				"/spec/configuration/architectureConfiguration/amd64/machineType", "/spec/configuration/architectureConfiguration/amd64/emulatedMachines",
				"/spec/configuration/cpuModel", "/spec/configuration/cpuRequest", "/spec/configuration/defaultRuntimeClass", "/spec/configuration/memBalloonStatsPeriod",
				"/spec/configuration/network/defaultNetworkInterface", "/spec/configuration/network/permitBridgeInterfaceOnPodNetwork", "/spec/configuration/instancetype/referencePolicy", "/spec/configuration/roleAggregationStrategy",
				"/spec/configuration/developerConfiguration/nodeSelectors/", "/spec/configuration/developerConfiguration/clusterProfiler",
				"/spec/configuration/developerConfiguration/pvcTolerateLessSpaceUpToPercent", "/spec/configuration/developerConfiguration/minimumReservePVCBytes",
				"/spec/configuration/smbios/", "/spec/configuration/virtualMachineOptions/",
				"/spec/configuration/additionalGuestMemoryOverheadRatio", "/spec/configuration/autoCPULimitNamespaceLabelSelector/", "/spec/configuration/seccompConfiguration/", "/spec/configuration/virtualMachineInstancesPerNode", "/spec/configuration/supportContainerResources",
				logVerbosity + "/virtAPI", logVerbosity + "/virtController", logVerbosity + "/virtHandler",
				logVerbosity + "/virtLauncher", logVerbosity + "/virtOperator", logVerbosity + "/nodeVerbosity/",
				"/spec/certificateRotateStrategy/selfSigned/",
				"/spec/configuration/tlsConfiguration/minTLSVersion", "/spec/configuration/tlsConfiguration/ciphers",
				"/spec/workloadUpdateStrategy/workloadUpdateMethods",
				"/spec/workloadUpdateStrategy/batchEvictionSize", "/spec/workloadUpdateStrategy/batchEvictionInterval",
			},
		},
		{
			object:     object(cdiKind.GroupVersion().String(), "CDI", "", names.CDIName, cdi),
			annotation: hcov1.AnnotationCDIPatch,
			acted:      actedOfCDI,
		},
		{
			object:     object(sspKind.GroupVersion().String(), sspKind.Kind, base.Namespace, sspv1beta3.Name, ssp),
			annotation: hcov1.AnnotationSSPPatch,
			acted: []string{
				"/spec/featureGates/deployTektonTaskResources", "/spec/tektonTasks/namespace", "/spec/tektonTasks/namespaces",
				"/spec/tektonPipelines/namespace", "/spec/tektonPipelines/namespaces", "/spec/featureGates/deployCommonInstancetypes",
			},
		},
	}
	var objects []*unstructured.Unstructured
	for _, o := range all {
		patched, err := o.patched(hco.Annotations[o.annotation])
		if err != nil {
			return nil, fmt.Errorf("annotation %s of HyperConverged %s: %w", o.annotation, hco.Name, err)
		}
		objects = append(objects, patched)
	}
	if errs := kubevirtconfig.Validate(objects[0].Object); len(errs) > 0 {
		return nil, fmt.Errorf("HyperConverged %s, or its annotation %s: of KubeVirt: %w", hco.Name, hcov1.AnnotationKubeVirtPatch, errs.ToAggregate())
	}
	dropEmpty(objects[1].Object["spec"])
	if err := checkDataConfig(objects[1]); err != nil {
		return nil, fmt.Errorf("HyperConverged %s: %w", hco.Name, err)
	}
	if err := nameRegistries(hco, objects[1]); err != nil {
		return nil, fmt.Errorf("HyperConverged %s: %w", hco.Name, err)
	}
	mark(objects, "operands", base.Version)
	return objects, nil
}

// kubeVirtSpec is the spec of the KubeVirt object.
func kubeVirtSpec(hco *hcov1.HyperConverged) (map[string]any, error) {
	configuration, err := configurationAsked(hco)
	if err != nil {
		return nil, err
	}
	spec := map[string]any{
		"imagePullPolicy":        "IfNotPresent",
		"uninstallStrategy":      string(hcov1.BlockUninstall),
		"configuration":          configuration,
		"workloadUpdateStrategy": updatesAsked(hco),
	}
	if err := placePods(hco, spec); err != nil {
		return nil, err
	}
	return spec, certify(hco, spec)
}

// placePods has spec, the KubeVirt object's, say where hco wants pods to run. What it leaves out is left to who edits that object.
func placePods(hco *hcov1.HyperConverged, spec map[string]any) error {
	placements := hco.Spec.Deployment.NodePlacements
	for name, placement := range map[string]*sdkapi.NodePlacement{"infra": placements.Infra, "workloads": placements.Workload} {
		if placement == nil {
			continue
		}
		said, err := asMap(placement)
		if err != nil {
			return fmt.Errorf("encoding nodePlacements of HyperConverged %s for %s: %w", hco.Name, name, err)
		}
		if dropEmpty(said); len(said) > 0 {
			spec[name] = map[string]any{"nodePlacement": said}
		}
	}
	return nil
}

// sizesEnabled is what hco says of the common instance types and preferences; yes, when it says nothing.
func sizesEnabled(hco *hcov1.HyperConverged) bool {
	asked := hco.Spec.WorkloadSources.CommonInstancetypesDeployment
	return asked == nil || ptr.Deref(asked.Enabled, true)
}

func object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// patched returns the object with patch, a JSON patch or nothing, applied to it. A patch
// that sets what nothing acts on is refused: it would be taken and do nothing.
func (o operand) patched(patch string) (*unstructured.Unstructured, error) {
	if patch == "" {
		return o.object, nil
	}
	operations, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		if reason := errors.Unwrap(err); reason != nil {
			err = reason // which is wrapped in the operation, and that may have the password of a proxy
		}
		return nil, fmt.Errorf("it is no JSON patch (RFC 6902); write a list of operations such as "+
			`[{"op":"add","path":"/spec/configuration/developerConfiguration/useEmulation","value":true}]: %w`, err)
	}
	original, err := json.Marshal(o.object.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.object.GetKind(), err)
	}
	changed, err := operations.Apply(original)
	if err != nil {
		return nil, fmt.Errorf("it does not apply to %s: %w", o.object.GetKind(), err)
	}
	result := &unstructured.Unstructured{}
	if err := json.Unmarshal(changed, &result.Object); err != nil {
		return nil, fmt.Errorf("decoding the patched %s: %w", o.object.GetKind(), err)
	}
	var idle []string
	for _, path := range leavesThatDiffer("", o.object.Object, result.Object) {
		if !o.acts(path) {
			idle = append(idle, path)
		}
	}
	if len(idle) > 0 {
		return nil, fmt.Errorf("it sets %s, which Slipway does not act on; %s", strings.Join(idle, ", "), o.instead())
	}
	return result, checkGates(result)
}

// checkGates refuses feature gates that nothing acts on.
func checkGates(kubevirt *unstructured.Unstructured) error {
	path := strings.Split(strings.TrimPrefix(featureGates, "/"), "/")
	gates, _, err := unstructured.NestedStringSlice(kubevirt.Object, path...)
	if err != nil {
		return fmt.Errorf("it sets %s, which must be a list of names: %w", featureGates, err)
	}
	for _, gate := range gates {
		if !slices.Contains(featuregate.Known(), gate) {
			return fmt.Errorf("it sets the feature gate %s, which Slipway does not act on; there are: %s", gate, strings.Join(featuregate.Known(), ", "))
		}
	}
	return nil
}

// acts says whether something acts on path. One of those listed that ends in a slash stands for all below it.
func (o operand) acts(path string) bool {
	return slices.ContainsFunc(o.acted, func(acted string) bool {
		return acted == path || strings.HasSuffix(acted, "/") && strings.HasPrefix(path, acted)
	})
}

func (o operand) instead() string {
	if len(o.acted) == 0 {
		return "nothing of " + o.object.GetKind() + " can be patched: remove the annotation"
	}
	return "what can be patched: " + strings.Join(o.acted, ", ")
}

// leavesThatDiffer returns the JSON pointers of scalars and lists that are not the same in a and b.
func leavesThatDiffer(path string, a, b any) []string {
	left, leftIsMap := a.(map[string]any)
	right, rightIsMap := b.(map[string]any)
	if (leftIsMap || a == nil) && (rightIsMap || b == nil) && (leftIsMap || rightIsMap) {
		var paths []string
		for _, key := range keysOf(left, right) {
			paths = append(paths, leavesThatDiffer(path+"/"+key, left[key], right[key])...)
		}
		return paths
	}
	if sameJSON(a, b) {
		return nil
	}
	return []string{path}
}

func keysOf(maps ...map[string]any) []string {
	var keys []string
	for _, m := range maps {
		for key := range m {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func sameJSON(a, b any) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

// applyOperands writes the KubeVirt, CDI and SSP objects and reads them back, for their status.
func (r *Reconciler) applyOperands(ctx context.Context, s *scope) error {
	wanted, err := operands(s.hco, r.Options.Values())
	if err != nil {
		return err
	}
	for _, o := range wanted {
		if o.GroupVersionKind() == sspKind {
			if s.settings, err = settings(o); err != nil {
				return err
			}
			if err := r.overwriteSSP(ctx, s.settings); err != nil {
				return err
			}
		}
		if err := r.applyOne(ctx, o); err != nil {
			return fmt.Errorf("applying what clients look for: %w", err)
		}
	}
	if s.sizes, err = sizesWanted(s.hco, wanted[0], s.settings); err != nil {
		return err
	}
	return r.readOperands(ctx, s, wanted)
}

// readOperands reads the KubeVirt, CDI and SSP objects, whose status the operator keeps, as they came of wanted.
func (r *Reconciler) readOperands(ctx context.Context, s *scope, wanted []*unstructured.Unstructured) error {
	kubevirt, cdi := &virtv1.KubeVirt{}, &cdiv1.CDI{}
	if found, err := r.readApplied(ctx, wanted[0], kubevirt); err != nil {
		return err
	} else if found {
		s.kubevirt = kubevirt
	}
	if found, err := r.readApplied(ctx, wanted[1], cdi); err != nil {
		return err
	} else if found {
		s.cdi = cdi
	}
	return r.readSSP(ctx, s)
}

// readApplied reads into object what came of wanted, and says whether there is one. A cache that lags behind what was applied is
// passed by: components would be rolled out as they were asked for before, and then once more.
func (r *Reconciler) readApplied(ctx context.Context, wanted *unstructured.Unstructured, object client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(wanted)
	err := r.Client.Get(ctx, key, object)
	if client.IgnoreNotFound(err) == nil && (err != nil || !r.applied.knows(identify(wanted), versionOf(object))) {
		err = r.Reader.Get(ctx, key, object)
	}
	if apierrors.IsNotFound(err) {
		return false, nil // deleted meanwhile; its event brings the next pass
	}
	if err != nil {
		return false, fmt.Errorf("reading %s %s: %w", wanted.GetKind(), wanted.GetName(), err)
	}
	return true, nil
}
