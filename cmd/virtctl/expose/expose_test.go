package expose

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// cluster is an API in memory.
type cluster struct {
	client.WithWatch
	err error
}

func (c cluster) Namespace() (string, error)        { return "shop", nil }
func (c cluster) Client() (client.WithWatch, error) { return c, c.err }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

// spec has an interface on the pod network that lists ports, after one on another network.
func spec(ports ...virtv1.Port) virtv1.VirtualMachineInstanceSpec {
	s := virtv1.VirtualMachineInstanceSpec{Networks: []virtv1.Network{
		{Name: "back", NetworkSource: virtv1.NetworkSource{Multus: &virtv1.MultusNetwork{NetworkName: "back"}}},
		{Name: "front", NetworkSource: virtv1.NetworkSource{Pod: &virtv1.PodNetwork{}}},
	}}
	s.Domain.Devices.Interfaces = []virtv1.Interface{{Name: "back", Ports: []virtv1.Port{{Port: 1}}}, {Name: "front", Ports: ports}}
	return s
}

var two = []virtv1.Port{{Name: "web", Protocol: "TCP", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53}}

func objects() []client.Object {
	template := func(labels map[string]string, ports ...virtv1.Port) *virtv1.VirtualMachineInstanceTemplateSpec {
		return &virtv1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec(ports...)}
	}
	app := map[string]string{"app": "web"}
	passing := map[string]string{virtv1.NodeNameLabel: "n1", virtv1.MigrationTargetNodeNameLabel: "n2", virtv1.VirtualMachinePoolRevisionName: "r1"}
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: named("web"), Spec: spec(two...)}
	vmi.Labels = map[string]string{"app": "web", virtv1.NodeNameLabel: "n1", virtv1.MigrationTargetNodeNameLabel: "n2"}
	bare := &virtv1.VirtualMachineInstance{ObjectMeta: named("bare")}
	bare.Labels = passing
	selecting := func(name string, by *metav1.LabelSelector) *virtv1.VirtualMachineInstanceReplicaSet {
		return &virtv1.VirtualMachineInstanceReplicaSet{ObjectMeta: named(name), Spec: virtv1.VirtualMachineInstanceReplicaSetSpec{Selector: by, Template: template(app, two...)}}
	}
	return []client.Object{
		vmi, bare,
		&virtv1.VirtualMachine{ObjectMeta: named("web"), Spec: virtv1.VirtualMachineSpec{Template: template(app, two...)}},
		&virtv1.VirtualMachine{ObjectMeta: named("mute"), Spec: virtv1.VirtualMachineSpec{Template: template(app)}},
		&virtv1.VirtualMachine{ObjectMeta: named("bare"), Spec: virtv1.VirtualMachineSpec{Template: template(nil, two...)}},
		&virtv1.VirtualMachine{ObjectMeta: named("empty")},
		selecting("web", &metav1.LabelSelector{MatchLabels: app}),
		selecting("bare", nil),
		selecting("picky", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}),
		&corev1.Service{ObjectMeta: named("taken")},
	}
}

func newCluster(funcs interceptor.Funcs) cluster {
	return cluster{WithWatch: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects()...).WithInterceptorFuncs(funcs).Build()}
}

func run(t *testing.T, c cluster, line string) (out, told string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := NewCommand(c)
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SetArgs(strings.Fields(line))
	command.SilenceErrors, command.SilenceUsage = true, true
	err = command.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// Each line makes the Service in testdata/<name>.yaml.
func TestGolden(t *testing.T) {
	for name, line := range map[string]string{
		"vm":           "vm web --name s --port 22",
		"vm-ports":     "VirtualMachines web --name s",
		"vmi":          "vmi web --name s --port 80 --target-port 8080 --port-name http --type nodeport",
		"vmi-named":    "vmis web --name s --port 53 --target-port dns --protocol udp --cluster-ip None",
		"vmirs":        "vmirs web --name s --type LoadBalancer --external-ip 192.0.2.1",
		"ipv6":         "vm web --name s --port 1 --ip-family ipv6",
		"dual":         "vm web --name s --port 1 --ip-family ipv6,IPv4",
		"dual-require": "vm web --name s --port 1 --ip-family IPv4,IPv6 --ip-family-policy requiredualstack",
		"single":       "vm web --name s --port 1 --ip-family-policy SingleStack",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(interceptor.Funcs{})
			out, told, err := run(t, c, line)
			words := strings.Fields(line)
			if want := "Service s successfully created for " + words[0] + " web\n"; err != nil || out != want || told != "" {
				t.Fatalf("%v\n%s%s\nwant %s", err, out, told, want)
			}
			var service corev1.Service
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "s"}, &service); err != nil {
				t.Fatal(err)
			}
			service.ResourceVersion = ""
			data, err := yaml.Marshal(service)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, filepath.Join("testdata", name+".yaml"), "# virtctl expose "+line+"\n"+string(data))
		})
	}
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"no arguments":              {"", "accepts 2 arg(s), received 0"},
		"an unknown kind":           {"pod web --name s", "unsupported resource type: pod; write vm, vmi or vmirs"},
		"no name":                   {"vm web --port 1", `required flag(s) "name" not set`},
		"no such VM":                {"vm none --name s --port 1", `reading VirtualMachine shop/none: virtualmachines.kubevirt.io "none" not found`},
		"no such VMI":               {"vmi none --name s --port 1", "reading VirtualMachineInstance shop/none"},
		"no such replica set":       {"vmirs none --name s --port 1", "reading VirtualMachineInstanceReplicaSet shop/none"},
		"no ports":                  {"vm mute --name s", "couldn't find port via --port flag or introspection: no interface of VirtualMachine shop/mute on the pod network lists ports; give --port"},
		"a VM without labels":       {"vm bare --name s --port 1", "cannot expose vm without any label: bare; add one to spec.template.metadata.labels and restart the VM"},
		"a VM without a template":   {"vm empty --name s --port 1", "cannot expose vm without any label: empty"},
		"labels that do not last":   {"vmi bare --name s --port 1", "cannot expose vmi without any label: bare; add one to the template"},
		"no selector":               {"vmirs bare --name s --port 1", "cannot expose vmirs without any label: bare; add one to spec.selector.matchLabels"},
		"expressions":               {"vmirs picky --name s --port 1", "cannot expose VirtualMachineInstanceReplicaSet with match expressions: a Service selects by labels alone"},
		"port 0":                    {"vm web --name s --port 0", "--port: 0 is no port; write a number from 1 to 65535"},
		"a port that is too high":   {"vm web --name s --port 65536", "--port: 65536 is no port"},
		"an unknown protocol":       {"vm web --name s --protocol SCTP", `--protocol: "SCTP" is not known; write TCP or UDP`},
		"an unknown type":           {"vm web --name s --type ExternalName", `--type: "ExternalName" is not known; write ClusterIP, NodePort or LoadBalancer`},
		"an unknown family":         {"vm web --name s --ip-family IPv5", `--ip-family: "IPv5" is not known; write IPv4 or IPv6`},
		"a family twice":            {"vm web --name s --ip-family IPv4,ipv4", "--ip-family: IPv4 stands there twice"},
		"an unknown policy":         {"vm web --name s --ip-family-policy Dual", `--ip-family-policy: "Dual" is not known; write SingleStack, PreferDualStack or RequireDualStack`},
		"one stack of two families": {"vm web --name s --ip-family IPv4,IPv6 --ip-family-policy SingleStack", "--ip-family-policy: SingleStack goes with one family"},
		"a name that is taken":      {"vm web --name taken --port 1", `creating Service shop/taken: services "taken" already exists`},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(t, newCluster(interceptor.Funcs{}), c.line)
			if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("%s: got %v, want %q; it printed %q", c.line, err, c.want, out)
			}
		})
	}
}

func TestClusters(t *testing.T) {
	if _, _, err := run(t, cluster{err: errors.New("no cluster")}, "vm web --name s"); err == nil || err.Error() != "no cluster" {
		t.Errorf("%v", err)
	}
	without := newCluster(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "kubevirt.io", Kind: "VirtualMachineInstanceReplicaSet"}, SearchedVersions: []string{"v1"}}
	}})
	if _, _, err := run(t, without, "vmirs web --name s"); err == nil || !strings.Contains(err.Error(), "reading VirtualMachineInstanceReplicaSet shop/web: this cluster does not serve that kind") {
		t.Errorf("%v", err)
	}
}

// A flag that has no effect is told.
func TestWarnings(t *testing.T) {
	_, told, err := run(t, newCluster(interceptor.Funcs{}), "vm web --name s --target-port 8080 --protocol UDP")
	if want := "Warning: --target-port counts with --port only; the ports are those that the VM lists\n" +
		"Warning: --protocol counts with --port only; the ports are those that the VM lists\n"; err != nil || told != want {
		t.Errorf("%v, it told %q, want %q", err, told, want)
	}
}
