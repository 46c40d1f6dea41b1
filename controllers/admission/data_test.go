package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// cronBase is a DataImportCron that is admitted; cases change it.
const cronBase = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataImportCron
metadata: {name: x, namespace: prod}
spec:
  schedule: "30 4 * * *"
  managedDataSource: debian
  template:
    spec:
      source: {http: {url: "https://example.com/disk.qcow2"}}
      storage: {resources: {requests: {storage: 1Gi}}}
`

func TestBadDataImportCronsAreRefusedWithThePath(t *testing.T) {
	const source = "spec.template.spec.source."
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"nothing wrong":                 {"debian", "debian-12", nil},
		"everything":                    {"  template:\n", "  importsToKeep: 2\n  garbageCollect: Never\n  retentionPolicy: None\n  template:\n    metadata: {labels: {a: b}}\n", nil},
		"no schedule":                   {"30 4 * * *", "", nil},
		"a schedule of nonsense":        {"30 4 * * *", "at dawn", []string{"spec.schedule"}},
		"a schedule of seconds":         {"30 4 * * *", "@every 5s", []string{"spec.schedule"}},
		"a day that never comes":        {"30 4 * * *", "0 0 31 2 *", []string{"spec.schedule"}},
		"no DataSource":                 {"managedDataSource: debian", "managedDataSource: \"\"", []string{"spec.managedDataSource"}},
		"a DataSource of no name":       {"managedDataSource: debian", "managedDataSource: Debian_12", []string{"spec.managedDataSource"}},
		"a DataSource of a long name":   {"managedDataSource: debian", "managedDataSource: " + strings.Repeat("a", 64), []string{"spec.managedDataSource"}},
		"a long name":                   {"name: x", "name: " + strings.Repeat("a", 64), []string{"metadata.name"}},
		"less than nothing to keep":     {"  template:\n", "  importsToKeep: -1\n  template:\n", []string{"spec.importsToKeep"}},
		"a way to collect that is none": {"  template:\n", "  garbageCollect: Sometimes\n  template:\n", []string{"spec.garbageCollect"}},
		"an account":                    {"  template:\n", "  serviceAccountName: importer\n  template:\n", nil},
		"an account of no name":         {"  template:\n", "  serviceAccountName: 'other:importer'\n  template:\n", []string{"spec.serviceAccountName"}},
		"a blank disk":                  {`{http: {url: "https://example.com/disk.qcow2"}}`, "{blank: {}}", []string{"spec.template.spec.source"}},
		"a claim":                       {`{http: {url: "https://example.com/disk.qcow2"}}`, "{pvc: {name: golden}}", nil},
		"a claim of its own namespace":  {`{http: {url: "https://example.com/disk.qcow2"}}`, "{pvc: {namespace: prod, name: golden}}", nil},
		"a DataSource as source":        {`source: {http: {url: "https://example.com/disk.qcow2"}}`, "sourceRef: {kind: DataSource, name: a}", []string{"spec.template.spec.sourceRef"}},
		"no URL":                        {"https://example.com/disk.qcow2", "ftp://example.com", []string{source + "http.url"}},
		"an image of a registry":        {`{http: {url: "https://example.com/disk.qcow2"}}`, `{registry: {url: "docker://example.com/disk:1", certConfigMap: authorities}}`, nil},
		"an image that nodes pull":      {`{http: {url: "https://example.com/disk.qcow2"}}`, `{registry: {url: "docker://example.com/disk:1", pullMethod: node, secretRef: login}}`, nil},
		"an image with a Secret":        {`{http: {url: "https://example.com/disk.qcow2"}}`, `{registry: {url: "docker://example.com/disk:1", secretRef: login}}`, nil},
		"an image stream":               {`{http: {url: "https://example.com/disk.qcow2"}}`, `{registry: {imageStream: "disk:1", pullMethod: node}}`, nil},
		"a pod's image stream":          {`{http: {url: "https://example.com/disk.qcow2"}}`, `{registry: {imageStream: "disk:1"}}`, []string{source + "registry.imageStream"}},
		"an authority of nodes":         {`{http: {url: "https://example.com/disk.qcow2"}}`, `{registry: {url: "docker://example.com/disk:1", pullMethod: node, certConfigMap: a}}`, []string{source + "registry.certConfigMap"}},
		"a Secret":                      {`disk.qcow2"`, `disk.qcow2", secretRef: login`, nil},
		"headers of Secrets":            {`disk.qcow2"`, `disk.qcow2", secretExtraHeaders: [a]`, nil},
		"no size":                       {"{resources: {requests: {storage: 1Gi}}}", "{}", []string{"spec.template.spec.storage.resources.requests.storage"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(cronBase, c.old) {
				t.Fatalf("the base has no %q", c.old)
			}
			response := ask(t, "/dataimportcrons-validate", []byte(strings.Replace(cronBase, c.old, c.replacement, 1)), nil, "jane")
			if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v: %+v", got, c.want, response.Result)
			}
		})
	}
}

// TestADataImportCronThatMayNotCloneIsWarnedOf has its account have no right yet, or one.
func TestADataImportCronThatMayNotCloneIsWarnedOf(t *testing.T) {
	foreign := strings.Replace(cronBase, `{http: {url: "https://example.com/disk.qcow2"}}`, "{pvc: {namespace: golden, name: base}}", 1)
	content, err := yaml.YAMLToJSON([]byte(foreign))
	if err != nil {
		t.Fatal(err)
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "prod", Name: "x", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: content}}}
	for may, warnings := range map[rights]int{true: 0, false: 1} {
		response := Handlers(empty{}, may, "slipway", nil)["/dataimportcrons-validate"].Handle(t.Context(), request)
		if !response.Allowed || len(response.Warnings) != warnings {
			t.Fatalf("with rights %t: %+v", may, response)
		}
		if warnings > 0 && !strings.Contains(response.Warnings[0], "User system:serviceaccount:prod:default has insufficient permissions in clone source namespace golden") {
			t.Errorf("it warns %q", response.Warnings)
		}
	}
}

// rights are the answer to each question whether somebody may do something.
type rights bool

// Create answers a review.
func (r rights) Create(_ context.Context, review client.Object, _ ...client.CreateOption) error {
	asked, ok := review.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return fmt.Errorf("a %T is created", review)
	}
	asked.Status.Allowed = bool(r)
	return nil
}

func TestADataImportCronKeepsItsSpec(t *testing.T) {
	other := []byte(strings.Replace(cronBase, "30 4", "30 5", 1))
	if response := ask(t, "/dataimportcrons-validate", other, []byte(cronBase), "jane"); response.Allowed || !strings.Contains(response.Result.Message, "Cannot update DataImportCron Spec") {
		t.Errorf("a change of the schedule: %+v", response)
	}
	if response := ask(t, "/dataimportcrons-validate", []byte(strings.Replace(cronBase, "name: x", "name: x, labels: {a: b}", 1)), []byte(cronBase), "jane"); !response.Allowed {
		t.Errorf("a change of labels: %+v", response.Result)
	}
}

func TestBadProfilesAndConfigurationsAreRefusedWithThePath(t *testing.T) {
	const config = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: CDI\nmetadata: {name: cdi}\nspec: "
	const profile = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: StorageProfile\nmetadata: {name: fast}\nspec: "
	for _, c := range []struct {
		path, object string
		want         []string
	}{
		{"/storageprofiles-validate", profile + "{}", nil},
		{"/storageprofiles-validate", profile + "{claimPropertySets: [{accessModes: [ReadWriteMany], volumeMode: Block}], cloneStrategy: csi-clone, dataImportCronSourceFormat: pvc, snapshotClass: a}", nil},
		{"/storageprofiles-validate", profile + "{claimPropertySets: [{accessModes: []}]}", []string{"spec.claimPropertySets[0].accessModes", "spec.claimPropertySets[0].volumeMode"}},
		{"/storageprofiles-validate", profile + "{cloneStrategy: snapshot, dataImportCronSourceFormat: snapshot}", nil},
		{"/storageprofiles-validate", profile + "{cloneStrategy: copy}", nil},
		{"/storageprofiles-validate", profile + "{cloneStrategy: host, dataImportCronSourceFormat: raw}", []string{"spec.cloneStrategy", "spec.dataImportCronSourceFormat"}},
		{"/storageprofiles-validate", profile + "{cloneStrategy: fast}", []string{"spec.cloneStrategy"}},
		{"/cdis-validate", config + "{imagePullPolicy: IfNotPresent, cloneStrategyOverride: copy, uninstallStrategy: BlockUninstallIfWorkloadsExist, config: {featureGates: [HonorWaitForFirstConsumer, DataVolumeClaimAdoption], dataVolumeTTLSeconds: 60, webhookPvcRendering: Disabled, preallocation: true, podResourceRequirements: {limits: {memory: 1Gi}}}}", nil},
		{"/cdis-validate", config + "{config: {logVerbosity: 3}}", nil},
		{"/cdis-validate", config + "{priorityClass: storage, infra: {deploymentReplicas: 2, apiServerReplicas: 1, uploadProxyReplicas: 3}}", nil},
		{"/cdis-validate", config + "{priorityClass: A b, infra: {deploymentReplicas: 0, uploadProxyReplicas: -1}}", []string{"spec.infra.deploymentReplicas", "spec.infra.uploadProxyReplicas", "spec.priorityClass"}},
		{"/cdis-validate", config + "{config: {logVerbosity: -1}}", []string{"spec.config.logVerbosity"}},
		{"/cdis-validate", config + "{config: {importProxy: {HTTPProxy: \"http://user:password@proxy:3128\", HTTPSProxy: \"proxy:3128\", noProxy: \"a,10.0.0.0/8\", trustedCAProxy: authorities}}}", nil},
		{"/cdis-validate", config + "{config: {importProxy: {HTTPProxy: \"ftp://a\"}}}", []string{"spec.config.importProxy.HTTPProxy"}},
		{"/cdis-validate", config + "{certConfig: {ca: {duration: 48h}, server: {duration: 24h, renewBefore: 12h}, client: {duration: 24h}}}", nil},
		{"/cdis-validate", config + "{certConfig: {ca: {duration: 12h}, server: {duration: 24h}}}", []string{"spec.certConfig.server.duration"}},
		{"/cdis-validate", config + "{config: {tlsSecurityProfile: {type: Modern, modern: {}}}}", nil},
		{"/cdis-validate", config + "{config: {tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS12, ciphers: [ECDHE-ECDSA-AES128-GCM-SHA256, DHE-RSA-AES128-GCM-SHA256]}}}}", nil},
		{"/cdis-validate", config + "{config: {tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS12, ciphers: [ECDHE-ECDSA-AES128-GCM-SHA256, ROT13]}}}}", []string{"spec.config.tlsSecurityProfile.custom.ciphers[1]"}},
		{"/cdis-validate", config + "{config: {featureGates: [BootcImageImport]}}", []string{"spec.config.featureGates[0]"}},
		{"/cdis-validate", strings.Replace(config, "name: cdi", `name: cdi, annotations: {slipway-vm.github.io/registries-conf: "A b"}`, 1) + "{}", []string{"metadata.annotations[slipway-vm.github.io/registries-conf]"}},
		{"/cdis-validate", strings.Replace(config, "name: cdi", "name: cdi, annotations: {slipway-vm.github.io/registries-conf: not-there-yet}", 1) + "{}", nil},
		{"/cdis-validate", config + "{config: {filesystemOverhead: {global: \"1\"}}}", []string{"spec.config.filesystemOverhead.global"}},
	} {
		response := ask(t, c.path, []byte(c.object), nil, "jane")
		if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s\nrefused %v, want %v: %+v", c.object, got, c.want, response.Result)
		}
	}
}
