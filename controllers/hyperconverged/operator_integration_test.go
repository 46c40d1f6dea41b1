//go:build integration

package hyperconverged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-vm/slipway/catalog"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hcov1beta1 "github.com/slipway-vm/slipway/internal/api/hco/v1beta1"
	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// patience bounds every wait of the test, also on a machine that is busy with other things.
const patience = 5 * time.Minute

// TestOperator walks through the life of one installation on a real API server, which has
// no nodes: the test plays the part of the controllers that roll pods out.
func TestOperator(t *testing.T) {
	c, options := startOperator(t)
	for _, stage := range []struct {
		name string
		test func(*testing.T, client.WithWatch, Options)
	}{
		{"an object of another name is refused", refusesOtherName},
		{"a patch of what nothing acts on is refused", refusesIdlePatch},
		{"the older version brings everything up", bringsUp},
		{"components are as many as KubeVirt asks", multipliesComponents},
		{"conditions name what is not ready, then say that all is", followsRollout},
		{"an update is told before it begins", announcesUpdates},
		{"an edit from outside is overwritten", overwritesEdits},
		{"an edit of KubeVirt is taken where something acts on it", judgesKubeVirt},
		{"components are placed and customized as KubeVirt asks, until it does not", customizesComponents},
		{"components that cannot be are left as they are", leavesWhatCannotBeCustomized},
		{"a patch that is taken back leaves nothing behind", takesPatchBack},
		{"definitions of snapshots that another brought are left alone", leavesSnapshotsToOthers},
		{"rules for Prometheus come when it does", installsRules},
		{"and go with it", goesOnWithoutRules},
		{"populators are registered where the cluster knows them", registersPopulators},
		{"a namespace for tasks is waited for, served, and left", servesNamespaces},
		{"virtual machines keep KubeVirt from being deleted", keepsKubeVirt},
		{"virtual machines keep it from being removed", refusesRemoval},
		{"it is removed, and what users stored stays", removes},
		{"another installation is refused", refusesConflict},
	} {
		if !t.Run(stage.name, func(t *testing.T) { stage.test(t, c, options) }) {
			t.Fatal("the stages build on each other")
		}
	}
}

func refusesOtherName(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	hco := theObject(options)
	hco.Name = "mine"
	if err := c.Create(t.Context(), hco); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("got %v, want a refusal that names metadata.name", err)
	}
}

func refusesIdlePatch(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	hco := theObject(options)
	hco.Annotations = map[string]string{hcov1.AnnotationKubeVirtPatch: `[{"op":"add","path":"/spec/imageTag","value":"x"}]`}
	wantRefusal(t, c.Create(t.Context(), hco), "/spec/imageTag")
}

func bringsUp(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	if err := c.Create(t.Context(), precious()); err != nil {
		t.Fatal(err)
	}
	seven := int32(7)
	flat := &hcov1beta1.HyperConverged{ObjectMeta: theObject(options).ObjectMeta}
	flat.Spec.LogVerbosityConfig.Kubevirt.VirtAPI = &seven
	flat.Annotations = map[string]string{
		hcov1.AnnotationKubeVirtPatch: `[{"op":"add","path":"/spec/configuration/developerConfiguration/useEmulation","value":true}]`,
	}
	if err := c.Create(t.Context(), flat); err != nil {
		t.Fatal(err)
	}
	waitHCO(t, c, options, "Available", metav1.ConditionFalse, "rollout not started")
	deployment := &appsv1.Deployment{}
	get(t, c, client.ObjectKey{Namespace: options.Namespace, Name: "virt-api"}, deployment)
	container := deployment.Spec.Template.Spec.Containers[0]
	if container.Image != options.SlipwayImage || !strings.Contains(strings.Join(container.Args, " "), "--verbosity=7") {
		t.Errorf("virt-api runs %s %v", container.Image, container.Args)
	}
	kubevirt := &virtv1.KubeVirt{}
	get(t, c, client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}, kubevirt)
	if developer := kubevirt.Spec.Configuration.DeveloperConfiguration; developer == nil || !developer.UseEmulation {
		t.Errorf("the annotation's patch did not reach KubeVirt: %+v", developer)
	}
	cdi := &cdiv1.CDI{}
	get(t, c, client.ObjectKey{Name: names.CDIName}, cdi)
	// Nobody answers for the subresources yet: a namespace could not be deleted.
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(subresources()), subresources()); !apierrors.IsNotFound(err) {
		t.Errorf("the APIService is there before its server: %v", err)
	}
}

// subresources is the APIService of virt-api, to be read into.
func subresources() *metav1.PartialObjectMetadata {
	service := &metav1.PartialObjectMetadata{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	service.SetName("v1.subresources.kubevirt.io")
	return service
}

// precious is a virtual machine. It is stored before virt-api, which nobody serves here, would be asked.
func precious() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": map[string]any{"namespace": "default", "name": "precious"},
		"spec": map[string]any{"runStrategy": "Halted", "template": map[string]any{"spec": map[string]any{"domain": map[string]any{"devices": map[string]any{}}}}},
	}}
}

func followsRollout(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	rollOut(t, c, options)
	hco := waitHCO(t, c, options, "Available", metav1.ConditionTrue, "")
	deadline := time.Now().Add(patience)
	for err := errors.New("not asked yet"); err != nil; err = c.Get(t.Context(), client.ObjectKeyFromObject(subresources()), subresources()) {
		if time.Now().After(deadline) {
			t.Fatalf("the subresources are not registered: %v", err)
		}
		<-time.After(100 * time.Millisecond)
	}
	if hco.Status.SystemHealthStatus != hcov1.HealthHealthy || len(hco.Status.Versions) != 1 || len(hco.Status.RelatedObjects) != 3 {
		t.Errorf("status is %+v", hco.Status)
	}
	key := client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}
	wait(t, c, &virtv1.KubeVirtList{}, key, "KubeVirt is deployed", func(k *virtv1.KubeVirt) bool {
		return k.Status.Phase == virtv1.KubeVirtPhaseDeployed && k.Status.ObservedGeneration != nil && *k.Status.ObservedGeneration == k.Generation
	})
	wait(t, c, &cdiv1.CDIList{}, client.ObjectKey{Name: names.CDIName}, "CDI is deployed", func(d *cdiv1.CDI) bool {
		return d.Status.Phase == "Deployed" && d.Status.ObservedVersion == options.Version
	})
}

// announcesUpdates has what is installed be of another version.
func announcesUpdates(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	hco := theObject(options)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events, err := c.Watch(ctx, &hcov1.HyperConvergedList{}, client.InNamespace(options.Namespace)) // it is told for a moment only
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	former := []byte(`{"status":{"versions":[{"name":"operator","version":"0.0.1"}]}}`)
	if err := c.Status().Patch(ctx, hco, client.RawPatch(types.MergePatchType, former)); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: "virt-api"}}
	if err := c.Delete(ctx, service); err != nil { // which brings a pass, as a new operator's start does
		t.Fatal(err)
	}
	for told := false; !told; {
		event, open := <-events.ResultChan()
		if !open {
			t.Fatal("the update was not told")
		}
		if seen, ok := event.Object.(*hcov1.HyperConverged); ok {
			progressing := meta.FindStatusCondition(seen.Status.Conditions, "Progressing")
			told = progressing.Status == metav1.ConditionTrue && progressing.Message == "Updating from 0.0.1 to "+options.Version
		}
	}
	wait(t, c, &hcov1.HyperConvergedList{}, client.ObjectKeyFromObject(hco), "the update to end", func(hco *hcov1.HyperConverged) bool {
		return installed(hco.Status.Versions) == options.Version && meta.IsStatusConditionFalse(hco.Status.Conditions, "Progressing")
	})
}

func takesPatchBack(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	change := `{"metadata":{"annotations":{"` + hcov1.AnnotationKubeVirtPatch + `":null}}}`
	if err := c.Patch(t.Context(), theObject(options), client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}
	wait(t, c, &virtv1.KubeVirtList{}, key, "KubeVirt allows no emulation any more", func(k *virtv1.KubeVirt) bool {
		developer := k.Spec.Configuration.DeveloperConfiguration
		return developer == nil || !developer.UseEmulation
	})
}

func overwritesEdits(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	get(t, c, client.ObjectKey{Name: "virt-api"}, role)
	want := len(role.Rules)
	role.Rules = role.Rules[:1]
	if err := c.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	wait(t, c, &rbacv1.ClusterRoleList{}, client.ObjectKey{Name: "virt-api"}, "the rules are back", func(r *rbacv1.ClusterRole) bool {
		return len(r.Rules) == want
	})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: "virt-api"}}
	if err := c.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	wait(t, c, &corev1.ServiceList{}, client.ObjectKeyFromObject(service), "the service is back", func(*corev1.Service) bool { return true })
}

// leavesSnapshotsToOthers plays another snapshot controller that takes the definitions over, and gives them back.
func leavesSnapshotsToOthers(t *testing.T, c client.WithWatch, _ Options) {
	t.Helper()
	relabel := func(owner string) {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		get(t, c, client.ObjectKey{Name: "volumesnapshots.snapshot.storage.k8s.io"}, definition)
		definition.Labels[names.LabelManagedBy] = owner
		if err := c.Update(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
	relabel("another")
	class := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "volumesnapshotclasses.snapshot.storage.k8s.io"}}
	if err := c.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := await.Object(ctx, c, &apiextensionsv1.CustomResourceDefinitionList{}, client.ObjectKeyFromObject(class),
		func(_ *apiextensionsv1.CustomResourceDefinition, exists bool) (bool, error) { return !exists, nil }); err != nil {
		t.Fatal(err)
	}
	if err := applyDefinitions(t.Context(), c, c); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(class), class); !apierrors.IsNotFound(err) {
		t.Errorf("a definition was installed beside those of another: %v", err)
	}
	if foreign, err := foreignDefinitions(t.Context(), c); err != nil || len(foreign) > 0 {
		t.Errorf("snapshots of another are taken for a conflict: %v, %v", foreign, err)
	}
	relabel(names.ManagedBy)
	wait(t, c, &apiextensionsv1.CustomResourceDefinitionList{}, client.ObjectKeyFromObject(class), "the missing definition is installed",
		established)
}

func servesNamespaces(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	ask := func(names ...string) {
		hco := &hcov1.HyperConverged{}
		get(t, c, client.ObjectKeyFromObject(theObject(options)), hco)
		hco.Spec.WorkloadSources.TektonNamespaces = names
		if err := c.Update(t.Context(), hco); err != nil {
			t.Fatal(err)
		}
	}
	ask("builds")
	waitHCO(t, c, options, "Progressing", metav1.ConditionTrue, "Tekton is not installed")
	installTask(t, c)
	waitHCO(t, c, options, "Progressing", metav1.ConditionTrue, "namespace builds")
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "builds"}}); err != nil {
		t.Fatal(err)
	}
	waitHCO(t, c, options, "Progressing", metav1.ConditionFalse, "")
	task := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tekton.dev/v1", "kind": "Task"}}
	key := client.ObjectKey{Namespace: "builds", Name: "one"}
	get(t, c, key, task)
	if got := fmt.Sprint(task.Object["spec"]); !strings.Contains(got, options.SlipwayImage) {
		t.Errorf("the task's image was not replaced: %s", got)
	}
	ask()
	deadline := time.Now().Add(patience)
	for err := error(nil); !apierrors.IsNotFound(err); err = c.Get(t.Context(), key, task) {
		if time.Now().After(deadline) {
			t.Fatalf("the task is still there: %v", err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func refusesRemoval(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	wantRefusal(t, c.Delete(t.Context(), theObject(options)), "default/precious")
	if err := c.Delete(t.Context(), precious()); err != nil {
		t.Fatal(err)
	}
}

func removes(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	if err := c.Delete(t.Context(), theObject(options)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := await.Object(ctx, c, &hcov1.HyperConvergedList{}, client.ObjectKeyFromObject(theObject(options)),
		func(_ *hcov1.HyperConverged, exists bool) (bool, error) { return !exists, nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range prunable {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(t.Context(), list, client.HasLabels{LabelComponent}); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		for _, left := range list.Items {
			t.Errorf("%s %s/%s is left", kind.Kind, left.Namespace, left.Name)
		}
	}
	get(t, c, client.ObjectKey{Name: "virtualmachines.kubevirt.io"}, &apiextensionsv1.CustomResourceDefinition{})
}

func refusesConflict(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	foreign := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubevirt"}}
	if err := c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), theObject(options)); err != nil {
		t.Fatal(err)
	}
	hco := waitHCO(t, c, options, "Degraded", metav1.ConditionTrue, "KubeVirt default/kubevirt")
	if reason := meta.FindStatusCondition(hco.Status.Conditions, "Degraded").Reason; reason != ReasonConflict {
		t.Errorf("reason is %s", reason)
	}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: options.Namespace, Name: "virt-api"}, &appsv1.Deployment{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("something was installed in spite of the conflict: %v", err)
	}
}

// TestOperatorBesideAnother: the operator comes to a cluster that has another's definitions, and
// not all that it watches otherwise.
func TestOperatorBesideAnother(t *testing.T) {
	c, config, options := startAPIServer(t)
	define(t, c, "cdi.kubevirt.io", map[string]string{"datavolumes": "DataVolume"})
	options.Sizes = catalog.Types()
	startRun(t, c, config, options)
	if err := c.Create(t.Context(), theObject(options)); err != nil {
		t.Fatal(err)
	}
	hco := waitHCO(t, c, options, "Degraded", metav1.ConditionTrue, "datavolumes.cdi.kubevirt.io")
	if reason := meta.FindStatusCondition(hco.Status.Conditions, "Degraded").Reason; reason != ReasonConflict {
		t.Errorf("reason is %s", reason)
	}
}

// startOperator starts an API server and the operator, and returns a client of the first.
func startOperator(t *testing.T) (client.WithWatch, Options) {
	t.Helper()
	c, config, options := startAPIServer(t)
	options.Bundles = []Bundle{{Name: "tasks", Files: fstest.MapFS{"one/task.yaml": {Data: []byte(
		"apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {name: one}\nspec: {image: 'ghcr.io/slipway-vm/slipway:devel'}\n")}}}}
	startRun(t, c, config, options)
	return c, options
}

// startAPIServer starts an API server, as prepared, with the operator's namespace.
func startAPIServer(t *testing.T, prepare ...func(*envtest.Environment)) (client.WithWatch, *rest.Config, Options) {
	t.Helper()
	need.APIServer(t)
	server := &envtest.Environment{}
	for _, change := range prepare {
		change(server)
	}
	config, err := apiserver.Begin(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Logf("stopping the API server: %v", err)
		}
	})
	c := apiserver.Player(t, config)
	options := testOptions()
	options.HealthAddress, options.MetricsAddress = "0", "0"
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: options.Namespace}}); err != nil {
		t.Fatal(err)
	}
	return c, config, options
}

// announced waits until the API server knows the webhooks at url.
func announced(t *testing.T, c client.WithWatch, url string) {
	t.Helper()
	at := func(config *string) bool { return config != nil && strings.HasPrefix(*config, url+"/") }
	wait(t, c, &apiextensionsv1.CustomResourceDefinitionList{}, client.ObjectKey{Name: hyperConvergedDefinition}, "webhooks are announced",
		func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter && at(d.Spec.Conversion.Webhook.ClientConfig.URL)
		})
	wait(t, c, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, client.ObjectKey{Name: validatorName}, "validation is announced",
		func(v *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
			return at(v.Webhooks[0].ClientConfig.URL)
		})
}

func theObject(options Options) *hcov1.HyperConverged {
	return &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: names.HyperConvergedName}}
}

// rollOut says for every component what the cluster's own controllers would say.
func rollOut(t *testing.T, c client.Client, options Options) {
	t.Helper()
	deployments := &appsv1.DeploymentList{}
	if err := c.List(t.Context(), deployments, client.InNamespace(options.Namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		if err := c.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	daemons := &appsv1.DaemonSet{}
	get(t, c, client.ObjectKey{Namespace: options.Namespace, Name: "virt-handler"}, daemons)
	daemons.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: daemons.Generation, DesiredNumberScheduled: 1, CurrentNumberScheduled: 1,
		UpdatedNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1,
	}
	if err := c.Status().Update(t.Context(), daemons); err != nil {
		t.Fatal(err)
	}
}

// installTask defines tekton.dev/v1 Task and Pipeline as far as the operator needs them.
func installTask(t *testing.T, c client.WithWatch) {
	t.Helper()
	define(t, c, "tekton.dev", map[string]string{"tasks": "Task", "pipelines": "Pipeline"})
}

// define makes the API server serve version v1 of kinds that take anything.
func define(t *testing.T, c client.WithWatch, group string, kinds map[string]string) {
	t.Helper()
	keep := true
	for plural, kind := range kinds {
		definition := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural, Singular: strings.ToLower(kind), ListKind: kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &keep,
					}},
				}},
			},
		}
		if err := c.Create(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		wait(t, c, &apiextensionsv1.CustomResourceDefinitionList{}, client.ObjectKeyFromObject(definition), kind+" is served", established)
	}
}

func waitHCO(t *testing.T, c client.WithWatch, options Options, kind string, status metav1.ConditionStatus, message string) *hcov1.HyperConverged {
	t.Helper()
	var last *hcov1.HyperConverged
	what := fmt.Sprintf("%s=%s %q", kind, status, message)
	wait(t, c, &hcov1.HyperConvergedList{}, client.ObjectKeyFromObject(theObject(options)), what, func(hco *hcov1.HyperConverged) bool {
		last = hco
		found := meta.FindStatusCondition(hco.Status.Conditions, kind)
		return found != nil && found.Status == status && strings.Contains(found.Message, message)
	})
	return last
}

func wait[T client.Object](t *testing.T, c client.WithWatch, list client.ObjectList, key client.ObjectKey, what string, check func(T) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last T
	err := await.Object(ctx, c, list, key, func(object T, exists bool) (bool, error) {
		if exists {
			last = object
		}
		return exists && check(object), nil
	})
	if err != nil {
		seen, marshalErr := json.Marshal(last)
		t.Fatalf("waiting for %s: %v; last seen: %.5000s (%v)", what, err, seen, marshalErr)
	}
}

func get(t *testing.T, c client.Client, key client.ObjectKey, into client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), key, into); err != nil {
		t.Fatal(err)
	}
}

func wantRefusal(t *testing.T, err error, words string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want a refusal that names %s", err, words)
	}
}
