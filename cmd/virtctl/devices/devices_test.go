package devices

import (
	"bytes"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.
func TestPermittedDevices(t *testing.T) {
	kv := virtv1.KubeVirt{}
	kv.Spec.Configuration.PermittedHostDevices = &virtv1.PermittedHostDevices{
		PciHostDevices:  []virtv1.PciHostDevice{{ResourceName: "example.com/a"}, {ResourceName: "example.com/b"}},
		USB:             []virtv1.USBHostDevice{{ResourceName: "example.com/usb"}},
		MediatedDevices: []virtv1.MediatedHostDevice{{ResourceName: "example.com/gpu"}},
	}
	for name, c := range map[string]struct {
		items         []virtv1.KubeVirt
		prints, fails string
	}{
		"some":            {[]virtv1.KubeVirt{kv}, "Permitted Devices: \nHost Devices: \nexample.com/a, example.com/b, example.com/usb \nGPU Devices: \nexample.com/gpu\n", ""},
		"none":            {[]virtv1.KubeVirt{{}}, "Permitted Devices: \nHost Devices: \n \nGPU Devices: \n\n", ""},
		"no installation": {nil, "", `no KubeVirt resource in "shop" namespace; name that of the installation with --namespace`},
	} {
		t.Run(name, func(t *testing.T) {
			server := standin.Start(t)
			list := virtv1.KubeVirtList{Items: c.items}
			list.APIVersion, list.Kind = "kubevirt.io/v1", "KubeVirtList"
			server.On("GET /apis/kubevirt.io/v1/namespaces/shop/kubevirts", standin.JSON(list))
			command := NewCommand(server)
			command.SilenceErrors, command.SilenceUsage = true, true
			var out bytes.Buffer
			command.SetOut(&out)
			command.SetArgs(nil)
			err := command.Execute()
			if out.String() != c.prints || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%v, printed %q", err, out.String())
			}
		})
	}
}
