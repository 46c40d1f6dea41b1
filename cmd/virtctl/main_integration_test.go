//go:build integration

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/createvm"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// stage is an API server with Slipway's definitions, and a namespace in it.
type stage struct {
	client     client.Client
	kubeconfig string
}

const shop = "shop"

// TestAgainstAnAPIServer runs the program as a user does, with a kubeconfig.
func TestAgainstAnAPIServer(t *testing.T) {
	config := apiserver.Start(t, "../../controllers/hyperconverged/components/crds")
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	s := &stage{client: c, kubeconfig: kubeconfig(t, config)}
	must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	for name, test := range map[string]func(*testing.T, *stage){
		"what create prints is accepted":                createIsAccepted,
		"expose makes Services":                         exposes,
		"templates are converted, filled in and used":   usesTemplates,
		"a kind that is not served is told in one line": tellsWhatIsNotServed,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kubeconfig writes a file by which the API server is reached.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: shop}
	file.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*file, path))
	return path
}

// virtctl runs the program with the words of line, as a shell splits them.
func (s *stage) virtctl(t *testing.T, line string) (string, error) {
	t.Helper()
	words, err := createvm.Words(line)
	must(t, err)
	root := newRootCommand("virtctl")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{"--kubeconfig", s.kubeconfig}, words...))
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// create gives a manifest to the API server, as `kubectl create` does: a field that it does not know is an error.
func (s *stage) create(ctx context.Context, manifest string) error {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return err
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(shop)
	}
	return s.client.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))
}

func createIsAccepted(t *testing.T, s *stage) {
	for _, line := range []string{
		"vm",
		"vm -n shop --run-strategy Halted --memory 1Gi --volume-containerdisk src:registry.example.com/debian:13 --user admin --ssh-key 'ssh-ed25519 A me@here' --ga-manage-ssh",
		"vm --instancetype u1.small --preference virtualmachinepreference/linux --volume-pvc src:root,bootorder:2 --volume-import type:http,url:https://mirror.example.com/a.qcow2,size:1Gi,bootorder:1",
		"vm --volume-import type:ds,src:images/debian,size:5Gi --volume-import type:pvc,src:images/data --volume-import type:blank,size:1Gi --volume-import type:snapshot,src:images/s --infer-instancetype --infer-preference",
		"vm --volume-import type:registry,url:docker://registry.example.com/a,pullmethod:node,size:1Gi --volume-import type:s3,url:s3://a/b,secretref:s,size:1Gi --volume-import type:gcs,url:gs://a/b,size:1Gi --volume-import type:imageio,url:https://a,diskid:d,size:1Gi --volume-import type:vddk,url:https://a,uuid:u,thumbprint:t,secretref:s,backingfile:f,size:1Gi",
		"vm --volume-datasource src:images/debian --volume-clone-pvc src:images/data --volume-blank size:1Gi",
		"vm --user admin --access-cred type:ssh,src:keys --access-cred type:password,src:word --volume-pvc src:windows --volume-sysprep src:unattend,type:secret",
		"vm --access-cred type:ssh,src:keys,method:configdrive --cloud-init-network-data dmVyc2lvbjogMg==",
		"instancetype --cpu 2 --memory 2Gi",
		"instancetype -n shop --cpu 2 --memory 2Gi --iothreadspolicy auto --gpu name:a,devicename:b.com/c --hostdevice name:d,devicename:e.com/f",
		"preference",
		"preference -n shop --cpu-topology spread --machine-type q35 --volume-storage-class fast",
	} {
		out, err := s.virtctl(t, "create "+line)
		must(t, err)
		if err := s.create(t.Context(), out); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

func exposes(t *testing.T, s *stage) {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web", Labels: map[string]string{"app": "web", virtv1.NodeNameLabel: "n1"}}}
	vmi.Spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
	vmi.Spec.Domain.Devices.Interfaces[0].Ports = []virtv1.Port{{Protocol: "TCP", Port: 80}, {Protocol: "UDP", Port: 53}}
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"}, Spec: virtv1.VirtualMachineSpec{
		RunStrategy: new(virtv1.RunStrategyHalted),
		Template:    &virtv1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: vmi.Spec},
	}}
	must(t, s.client.Create(t.Context(), vmi))
	must(t, s.client.Create(t.Context(), vm))
	for line, check := range map[string]func(corev1.ServiceSpec) bool{
		"vm web --name a --port 22": func(s corev1.ServiceSpec) bool {
			return s.Ports[0].Port == 22 && s.Ports[0].TargetPort.IntVal == 22 && s.ClusterIP != ""
		},
		"vm web --name b":  func(s corev1.ServiceSpec) bool { return len(s.Ports) == 2 && s.Ports[1].Protocol == corev1.ProtocolUDP },
		"vmi web --name c": func(s corev1.ServiceSpec) bool { return len(s.Ports) == 2 && s.Ports[0].Name == "port-1" },
		"vmi web --name d -n shop --port 80 --target-port 8080 --type NodePort": func(s corev1.ServiceSpec) bool {
			return s.Ports[0].NodePort != 0 && s.Ports[0].TargetPort.IntVal == 8080
		},
		"vmi web --name e --port 80 --cluster-ip None --ip-family IPv4 --ip-family-policy PreferDualStack": func(s corev1.ServiceSpec) bool {
			return s.ClusterIP == "None" && s.IPFamilies[0] == corev1.IPv4Protocol && *s.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
		},
	} {
		words := strings.Fields(line)
		out, err := s.virtctl(t, "expose "+line)
		if want := "Service " + words[3] + " successfully created for " + words[0] + " web\n"; err != nil || out != want {
			t.Errorf("%s: %v, %q", line, err, out)
			continue
		}
		var service corev1.Service
		must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: words[3]}, &service))
		if spec := service.Spec; len(spec.Selector) != 1 || spec.Selector["app"] != "web" || !check(spec) {
			t.Errorf("%s made %+v", line, spec)
		}
	}
}

const openshiftTemplate = `apiVersion: template.openshift.io/v1
kind: Template
metadata: {name: debian}
message: ${NAME} is made.
labels: {team: "${TEAM}"}
parameters:
- {name: NAME, generate: expression, from: "vm-[a-z0-9]{8}", required: true}
- {name: TEAM, value: builds}
objects:
- apiVersion: kubevirt.io/v1
  kind: VirtualMachine
  metadata: {name: "${NAME}"}
  spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}, memory: {guest: 64Mi}}}}}
`

func usesTemplates(t *testing.T, s *stage) {
	tmpl := &templatev1.Template{}
	must(t, yaml.UnmarshalStrict([]byte(openshiftTemplate), tmpl))
	tmpl.Namespace = shop
	must(t, s.client.Create(t.Context(), tmpl))

	out, err := s.virtctl(t, "template convert debian")
	must(t, err)
	if err := s.create(t.Context(), out); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := s.virtctl(t, "template process debian --print-params"); err != nil || !strings.Contains(out, "value: builds") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = s.virtctl(t, "template process debian -p NAME=printed")
	must(t, err)
	if err := s.create(t.Context(), out); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := s.virtctl(t, "template process debian -p NAME=created,TEAM=web --create"); err != nil || out != "virtualmachine.kubevirt.io/created created\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := s.virtctl(t, "template create --vm-name created --name golden"); err != nil || !strings.HasPrefix(out, "virtualmachinetemplaterequest.template.kubevirt.io/created-") {
		t.Errorf("%v\n%s", err, out)
	}
	requests := &vmtemplatev1beta1.VirtualMachineTemplateRequestList{}
	must(t, s.client.List(t.Context(), requests, client.InNamespace(shop)))
	want := vmtemplatev1beta1.VirtualMachineTemplateRequestSpec{TemplateName: "golden", VirtualMachineRef: vmtemplatev1beta1.VirtualMachineReference{Namespace: shop, Name: "created"}}
	if len(requests.Items) != 1 || !equality.Semantic.DeepEqual(requests.Items[0].Spec, want) {
		t.Errorf("the requests are %+v", requests.Items)
	}
	for name, team := range map[string]string{"printed": "builds", "created": "web"} {
		var vm virtv1.VirtualMachine
		must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: name}, &vm))
		if vm.Labels["team"] != team {
			t.Errorf("%s has labels %v", name, vm.Labels)
		}
	}
}

func tellsWhatIsNotServed(t *testing.T, s *stage) {
	for line, want := range map[string]string{
		"expose vmirs web --name z --port 1": `reading VirtualMachineInstanceReplicaSet shop/web: virtualmachineinstancereplicasets.kubevirt.io "web" not found`,
		"start web":                          "Error starting VirtualMachine this cluster does not serve subresources.kubevirt.io/v1",
		"console web":                        "this cluster does not serve subresources.kubevirt.io/v1",
		"version":                            "reading the version of the cluster's API: this cluster does not serve subresources.kubevirt.io/v1",
		"permitted-devices":                  `no KubeVirt resource in "shop" namespace`,
		"pause vm nobody":                    `Error getting VirtualMachine nobody: virtualmachines.kubevirt.io "nobody" not found`,
	} {
		if out, err := s.virtctl(t, line); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}
