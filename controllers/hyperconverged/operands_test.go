package hyperconverged

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

func TestOperandsArePatchedByAnnotation(t *testing.T) {
	const kubevirt, cdi = hcov1.AnnotationKubeVirtPatch, hcov1.AnnotationCDIPatch
	cases := map[string]struct {
		annotation, patch string
		wantError         string // part of it; none when empty
	}{
		"no patch":               {},
		"emulation is allowed":   {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration/useEmulation","value":true}]`},
		"a whole parent is set":  {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration","value":{"useEmulation":true}}]`},
		"what nothing acts on":   {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/migrations","value":{"allowPostCopy":true}}]`, wantError: "/spec/configuration/migrations/allowPostCopy, which Slipway does not act on"},
		"a gate of nothing":      {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration/featureGates","value":["HostDisk","GPU"]}]`, wantError: "the feature gate GPU, which Slipway does not act on; there are: HostDisk, VSOCK, DownwardMetrics, ImageVolume"},
		"gates that are no list": {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration/featureGates","value":"HostDisk"}]`, wantError: "must be a list of names"},
		"emulation, and a gate":  {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration","value":{"useEmulation":true,"featureGates":["HostDisk","VSOCK"]}}]`},
		"levels of logs":         {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration","value":{"useEmulation":true,"logVerbosity":{"virtAPI":4,"virtLauncher":3}}}]`},
		"a level of what is not": {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration/logVerbosity","value":{"virtSynchronizationController":4}}]`, wantError: "virtSynchronizationController, which Slipway does not act on"},
		"no JSON":                {annotation: kubevirt, patch: `useEmulation`, wantError: "it is no JSON patch"},
		"a patch of a component": {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/customizeComponents","value":{"patches":[{"resourceType":"Deployment","resourceName":"virt-api","type":"merge","patch":"{}"}]}},` +
			`{"op":"add","path":"/spec/configuration/developerConfiguration/useEmulation","value":true}]`},
		"nodes and requests": {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/workloads","value":{"nodePlacement":{"nodeSelector":{"vms":"yes"}}}},` +
			`{"op":"add","path":"/spec/configuration/handlerConfiguration","value":{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5,"burst":10}}}}},` +
			`{"op":"add","path":"/spec/configuration/developerConfiguration/useEmulation","value":true}]`},
		"the cluster profiler":      {annotation: kubevirt, patch: `[{"op":"add","path":"/spec/configuration/developerConfiguration","value":{"useEmulation":true,"clusterProfiler":true}}]`},
		"a path that is not there":  {annotation: kubevirt, patch: `[{"op":"remove","path":"/spec/nothing"}]`, wantError: "it does not apply to KubeVirt"},
		"the name of the object":    {annotation: kubevirt, patch: `[{"op":"replace","path":"/metadata/name","value":"x"}]`, wantError: "/metadata/name"},
		"a gate of CDI":             {annotation: cdi, patch: `[{"op":"add","path":"/spec/config/featureGates","value":["x"]}]`, wantError: "/spec/config/featureGates, which Slipway does not act on; what can be patched: /spec/config/uploadProxyURLOverride"},
		"a proxy that is none":      {annotation: cdi, patch: `[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPProxy":"ftp://proxy:80"}}]`, wantError: "spec.config.importProxy.HTTPProxy: Invalid value: proxies are spoken to by http"},
		"how much is logged of CDI": {annotation: cdi, patch: `[{"op":"add","path":"/spec/config/logVerbosity","value":10}]`, wantError: "spec.config.logVerbosity: Invalid value: 10: levels are 0 to 9"},
		"an overhead of everything": {annotation: cdi, patch: `[{"op":"add","path":"/spec/config/filesystemOverhead/storageClass/fast","value":"1"}]`, wantError: "a file system of which nothing is left"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{}
			hco.Name = "kubevirt-hyperconverged"
			if c.annotation != "" {
				hco.Annotations = map[string]string{c.annotation: c.patch}
			}
			objects, err := operands(hco, testOptions().Values())
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) || !strings.Contains(err.Error(), c.annotation) {
					t.Errorf("got error %v, want one with %q and the annotation's name", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			emulation, _, err := unstructured.NestedBool(objects[0].Object, "spec", "configuration", "developerConfiguration", "useEmulation")
			if err != nil || emulation != (c.patch != "") {
				t.Errorf("useEmulation: got %v (%v), want %v", emulation, err, c.patch != "")
			}
		})
	}
}

func TestCDILogsAsHyperConvergedSays(t *testing.T) {
	for name, level := range map[string]*int32{"nothing": nil, "little": new(int32(0)), "much": new(int32(7))} {
		hco := &hcov1.HyperConverged{}
		hco.Spec.Deployment.LogVerbosityConfig.CDI = level
		objects, err := operands(hco, testOptions().Values())
		if err != nil {
			t.Fatal(err)
		}
		got, set, err := unstructured.NestedInt64(objects[1].Object, "spec", "config", "logVerbosity")
		if err != nil || set != (level != nil) || set && got != int64(*level) {
			t.Errorf("%s: the CDI object has %d (%v), %v", name, got, set, err)
		}
	}
}

func TestTheProxyOfImportsIsPatched(t *testing.T) {
	hco := &hcov1.HyperConverged{}
	hco.Annotations = map[string]string{hcov1.AnnotationCDIPatch: `[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPProxy":"http://proxy:80","HTTPSProxy":"http://proxy:80","noProxy":"a","trustedCAProxy":"b"}}]`}
	objects, err := operands(hco, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	set, _, err := unstructured.NestedStringMap(objects[1].Object, "spec", "config", "importProxy")
	if err != nil || len(set) != 4 || set["HTTPProxy"] != "http://proxy:80" || set["trustedCAProxy"] != "b" {
		t.Errorf("the CDI object has %v, %v", set, err)
	}
	for patch, want := range map[string]string{
		`[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPProxy":"http://user:pa55/word@proxy:80"}}]`:  "special characters",
		`[{"op":"add","path":"/spec/config/importProxy","value":"http://user:pa55word@proxy:80"}]`:                 "importProxy",
		`[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPProxy":["http://user:pa55word@proxy:80"]}}]`: "HTTPProxy",
		`[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPPROXY":"http://user:pa55word@proxy:80"}}]`:   "HTTPPROXY",
		`[{"op":"add","path":"/spec/config/importProxy/x/y","value":"http://user:pa55word@proxy:80"}]`:             "/x/y",
		`[{"op":"test","path":"/spec/config/importProxy","value":{"HTTPProxy":"http://user:pa55word@proxy:80"}}]`:  "",
		`[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPProxy":"http://user:pa55word@proxy:80"}`:     "",
		`[{"op":"http://user:pa55word@proxy:80","path":"/spec/config/importProxy"}]`:                               "unsupported operation",
	} {
		hco.Annotations[hcov1.AnnotationCDIPatch] = patch
		if _, err := operands(hco, testOptions().Values()); err == nil || strings.Contains(err.Error(), "pa55") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is answered by: %v", patch, err)
		}
	}
}

func TestTheCDIObjectNamesTheRegistriesConf(t *testing.T) {
	for name, want := range map[string]string{"": "", "mirrors": "mirrors", "Mirrors!": "no name of a ConfigMap"} {
		hco := &hcov1.HyperConverged{}
		hco.Annotations = map[string]string{names.AnnotationRegistries: name}
		objects, err := operands(hco, testOptions().Values())
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), names.AnnotationRegistries) {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		for _, object := range objects {
			if got := object.GetAnnotations()[names.AnnotationRegistries]; got != "" && object.GetKind() != "CDI" || object.GetKind() == "CDI" && got != want {
				t.Errorf("%q: %s names %q", name, object.GetKind(), got)
			}
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, change := range map[string]func(*hcov1.HyperConverged){
		"metadata.name":      func(hco *hcov1.HyperConverged) { hco.Name = "mine" },
		"metadata.namespace": func(hco *hcov1.HyperConverged) { hco.Namespace = "default" },
	} {
		hco := &hcov1.HyperConverged{}
		hco.Name, hco.Namespace = "kubevirt-hyperconverged", "kubevirt-hyperconverged"
		if err := validate(hco, testOptions()); err != nil {
			t.Errorf("the one object is refused: %v", err)
		}
		change(hco)
		if err := validate(hco, testOptions()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that names %s", err, want)
		}
	}
}
