package memorydump

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

const (
	machine  = "PUT /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/web/"
	vmAt     = "GET /apis/kubevirt.io/v1/namespaces/shop/virtualmachines/web"
	vmsAt    = "GET /apis/kubevirt.io/v1/namespaces/shop/virtualmachines"
	vmiAt    = "GET /apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web"
	configAt = "GET /apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config"
	claimsAt = "POST /api/v1/namespaces/shop/persistentvolumeclaims"

	submitted = "Successfully submitted memory dump request of VM web\n"
)

func run(cluster Cluster, line string) (string, error) {
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommand(cluster))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{"memory-dump"}, strings.Fields(line)...))
	err := root.Execute()
	return out.String(), err
}

// cluster has the VM web, whose guest has 100 MiB.
func cluster(t *testing.T) *standin.Server {
	t.Helper()
	server := standin.Start(t)
	server.On(machine+"memorydump", standin.Accepted)
	server.On(machine+"removememorydump", standin.Accepted)
	server.On(claimsAt, standin.JSON(&corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dumps"},
	}))
	name := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	server.On(vmAt, standin.JSON(&virtv1.VirtualMachine{TypeMeta: kind("VirtualMachine"), ObjectMeta: name}))
	memory := resource.MustParse("100Mi")
	vmi := &virtv1.VirtualMachineInstance{TypeMeta: kind("VirtualMachineInstance"), ObjectMeta: name}
	vmi.Spec.Domain.Memory = &virtv1.Memory{Guest: &memory}
	server.On(vmiAt, standin.JSON(vmi))
	return server
}

// listed answers a list with list, and a watch with nothing.
func listed(list any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			standin.JSON(list)(w, r)
		}
	}
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: name}
}

func TestDumpsAreAskedFor(t *testing.T) {
	for line, c := range map[string]struct{ request, prints string }{
		"get web --claim-name=dumps": {machine + `memorydump {"claimName":"dumps","phase":""}`, submitted},
		"get web":                    {machine + `memorydump {"claimName":"","phase":""}`, submitted},
		"remove web":                 {machine + "removememorydump", "Successfully submitted remove memory dump association of VM web\n"},
	} {
		t.Run(line, func(t *testing.T) {
			server := cluster(t)
			out, err := run(server, line)
			if err != nil || out != c.prints || !slices.Equal(server.Seen(), []string{c.request}) {
				t.Errorf("%v, printed %q, sent %q", err, out, server.Seen())
			}
		})
	}
}

func TestAClaimIsMadeThatIsBigEnough(t *testing.T) {
	overheads := &cdiv1.FilesystemOverhead{Global: "0.5", StorageClass: map[string]cdiv1.Percent{"fast": "0.25"}}
	for line, c := range map[string]struct {
		overheads *cdiv1.FilesystemOverhead
		want      string
	}{
		"get web --claim-name=dumps --create-claim":                              {nil, "dumps ReadWriteOnce 211Mi"},
		"get web --claim-name=dumps --create-claim --access-mode=ReadWriteMany":  {overheads, "dumps ReadWriteMany 300Mi"},
		"get web --claim-name=dumps --create-claim --storage-class=fast":         {overheads, "dumps ReadWriteOnce 250Mi fast"},
		"get web --claim-name=dumps --create-claim --storage-class=not-in-there": {overheads, "dumps ReadWriteOnce 300Mi not-in-there"},
	} {
		t.Run(line, func(t *testing.T) {
			server := cluster(t)
			if c.overheads != nil {
				config := &cdiv1.CDIConfig{TypeMeta: metav1.TypeMeta{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "CDIConfig"}, ObjectMeta: metav1.ObjectMeta{Name: "config"}}
				config.Status.FilesystemOverhead = c.overheads
				server.On(configAt, standin.JSON(config))
			}
			out, err := run(server, line)
			if err != nil || out != "PVC shop/dumps created\n"+submitted {
				t.Fatalf("%v, printed %q", err, out)
			}
			sent := strings.Join(server.Seen(), "\n") // claims go as protobuf, in which words stand as they are
			for word := range strings.FieldsSeq(c.want) {
				if !strings.Contains(sent, word) {
					t.Errorf("sent %q, want %s in it", sent, word)
				}
			}
		})
	}
}

func TestMistakesAreToldBeforeAnythingIsAskedFor(t *testing.T) {
	associated := &virtv1.VirtualMachine{TypeMeta: kind("VirtualMachine"), ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	associated.Status.MemoryDumpRequest = &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "other"}
	none := *associated.DeepCopy()
	none.Status.MemoryDumpRequest = nil
	for line, want := range map[string]string{
		"get web --create-claim":                                                "missing claim name",
		"get web --claim-name=dumps --storage-class=fast":                       "add --create-claim",
		"get web --claim-name=dumps --create-claim --access-mode=ReadOnlyMany":  "readonly",
		"get web --claim-name=dumps --create-claim --access-mode=ReadWriteOnly": "invalid access mode",
		"get web --claim-name=dumps --create-claim":                             "please remove current memory dump association",
		"get web --claim-name=dumps --output=x --format=qcow2":                  "acceptable values are gzip or raw",
		"download web":                           "'--output' flag",
		"download web --output=x --local-port=1": "--local-port needs --port-forward",
		"download web --output=x --format=raw":   "has no memory dump",
	} {
		t.Run(line, func(t *testing.T) {
			server := cluster(t)
			server.On(vmAt, standin.JSON(associated))
			server.On(vmsAt, listed(&virtv1.VirtualMachineList{TypeMeta: kind("VirtualMachineList"), Items: []virtv1.VirtualMachine{none}}))
			_, err := run(server, line)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
			for _, sent := range server.Seen() {
				if !strings.HasPrefix(sent, "GET") {
					t.Errorf("sent %s", sent)
				}
			}
		})
	}
}
