//go:build integration

package hyperconverged

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// theKubeVirt is the object that HyperConverged made, to be patched or deleted by its name.
func theKubeVirt(options Options) *virtv1.KubeVirt {
	return &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: names.KubeVirtName}}
}

// judgesKubeVirt edits the KubeVirt object by hand, in each of its versions.
func judgesKubeVirt(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	developer := func(set string) string {
		return `{"spec":{"configuration":{"developerConfiguration":{` + set + `}}}}`
	}
	configuration := func(set string) string { return `{"spec":{"configuration":{` + set + `}}}` }
	patching := func(kind, name, patch string) string {
		return fmt.Sprintf(`{"spec":{"customizeComponents":{"patches":[{"resourceType":%q,"resourceName":%q,"type":"strategic","patch":%q}]}}}`, kind, name, patch)
	}
	for change, want := range map[string]string{ // the field that is refused, or nothing
		configuration(`"liveUpdateConfiguration":{"maxCpuSockets":8}`):                                                             "",
		configuration(`"obsoleteCPUModels":{"Conroe":true}`):                                                                       "",
		developer(`"logVerbosity":{"virtAPI":5}`):                                                                                  "",
		`{"metadata":{"annotations":{"mine":"yes"}}}`:                                                                              "",
		configuration(`"machineType":"pc-i440fx"`):                                                                                 "spec.configuration.machineType",
		configuration(`"architectureConfiguration":{"amd64":{"machineType":"pc"}}`):                                                "spec.configuration.architectureConfiguration.amd64.machineType",
		configuration(`"architectureConfiguration":{"amd64":{"machineType":"q35","emulatedMachines":["q35*","pc-q35*"]}}`):         "",
		configuration(`"cpuModel":"a b"`):                                                                                          "spec.configuration.cpuModel",
		configuration(`"cpuModel":"Penryn","cpuRequest":"250m"`):                                                                   "",
		configuration(`"obsoleteCPUModels":{"not a model":true}`):                                                                  `spec.configuration.obsoleteCPUModels[not a model]`,
		configuration(`"supportContainerResources":[{"type":"sidecar","resources":{"requests":{"cpu":"1"}}}]`):                     "spec.configuration.supportContainerResources[0].type",
		configuration(`"tlsConfiguration":{"minTLSVersion":"VersionTLS12","ciphers":["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]}`): "",
		configuration(`"tlsConfiguration":{"minTLSVersion":"VersionTLS12","ciphers":["ROT13"]}`):                                   "spec.configuration.tlsConfiguration.ciphers[0]",
		configuration(`"tlsConfiguration":{"ciphers":["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]}`):                                "spec.configuration.tlsConfiguration.ciphers",
		`{"spec":{"certificateRotateStrategy":{"selfSigned":{"ca":{"duration":"48h"}}}}}`:                                          "",
		`{"spec":{"certificateRotateStrategy":{"selfSigned":{"server":{"duration":"9m"}}}}}`:                                       "spec.certificateRotateStrategy.selfSigned.server.duration",
		configuration(`"evictionStrategy":"Sometimes"`):                                                                            "spec.configuration.evictionStrategy",
		developer(`"logVerbosity":{"virtAPI":10}`):                                                                                 "spec.configuration.developerConfiguration.logVerbosity.virtAPI",
		`{"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":["LiveMigrate"]}}}`:                                            "spec.workloadUpdateStrategy.workloadUpdateMethods[0]",
		`{"spec":{"workloadUpdateStrategy":{"batchEvictionSize":0}}}`:                                                              "spec.workloadUpdateStrategy.batchEvictionSize",
		`{"spec":{"uninstallStrategy":"RemoveWorkloads"}}`:                                                                         "spec.uninstallStrategy",
		`{"spec":{"infra":{"replicas":2}}}`:                                                                                        "",
		`{"spec":{"infra":{"replicas":0}}}`:                                                                                        "spec.infra.replicas",
		`{"spec":{"infra":{"nodePlacement":{"tolerations":[{"key":"a","operator":"Exists"}]}}}}`:                                   "",
		`{"spec":{"infra":{"nodePlacement":{"tolerations":[{"key":"a","operator":"Sometimes"}]}}}}`:                                "spec.infra.nodePlacement",
		`{"spec":{"workloads":{"nodePlacement":{"nodeSelector":{"a b":"c"}}}}}`:                                                    "spec.workloads.nodePlacement",
		`{"spec":{"workloads":{"replicas":2}}}`:                                                                                    "spec.workloads.replicas",
		patching("Deployment", "virt-api", `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`):                         "",
		patching("deployment", "*", `{"spec":{"minReadySeconds":-1}}`):                                                             "spec.customizeComponents",
		patching("Deployment", "virt-api", `{"spec":{"template":{"spec":{"tolerance":[]}}}}`):                                      "spec.customizeComponents.patches[0].patch",
		patching("Deployment", "virt-api", `{"spec":`):                                                                             "spec.customizeComponents.patches[0].patch",
		patching("Deployment", "cdi-uploadproxy", `{}`):                                                                            "spec.customizeComponents.patches[0].resourceName",
		patching("APIService", "*", `{}`):                                                                                          "spec.customizeComponents.patches[0].resourceType",
		configuration(`"apiConfiguration":{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5,"burst":9}}}}`):          "",
		configuration(`"apiConfiguration":{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5,"burst":0}}}}`):          "spec.configuration.apiConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst",
		`{"spec":{"imageTag":"v9"}}`:                                                                                               "spec.imageTag",
	} {
		for _, version := range []string{"v1", "v1alpha3"} {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(schema.GroupVersionKind{Group: virtv1.GroupVersion.Group, Version: version, Kind: "KubeVirt"})
			object.SetNamespace(options.Namespace)
			object.SetName(names.KubeVirtName)
			err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
			if want == "" && err != nil || want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want+": ")) {
				t.Errorf("%s of version %s: %v, want a refusal of %q", change, version, err, want)
			}
		}
	}
	// A client that reads the object and writes it back says no more than it read.
	kubevirt := theKubeVirt(options)
	get(t, c, client.ObjectKeyFromObject(kubevirt), kubevirt)
	kubevirt.Spec.Configuration.ObsoleteCPUModels = map[string]bool{"Conroe": true}
	if err := c.Update(t.Context(), kubevirt, client.DryRunAll); err != nil {
		t.Errorf("writing back what was read: %v", err)
	}
	another := theKubeVirt(options)
	another.Namespace, another.Name = "default", "of-another"
	another.Spec.ImageTag = "v9"
	if err := c.Create(t.Context(), another, client.DryRunAll); err != nil {
		t.Errorf("another installation's object was judged: %v", err)
	}
}

// keepsKubeVirt deletes the KubeVirt object while there is a virtual machine.
func keepsKubeVirt(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	err := c.Delete(t.Context(), theKubeVirt(options))
	for _, words := range []string{"there are still Virtual Machines present", "VirtualMachine default/precious", "BlockUninstallIfWorkloadsExist"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want a refusal with %q", err, words)
		}
	}
	kubevirt := theKubeVirt(options)
	get(t, c, client.ObjectKeyFromObject(kubevirt), kubevirt)
	if kubevirt.DeletionTimestamp != nil {
		t.Errorf("it goes since %s", kubevirt.DeletionTimestamp.Format(time.RFC3339))
	}
}
