package pod

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestANameFollowsFromTheVMI(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Name, vmi.UID = "web", "11111111-2222-3333-4444-555555555555"
	launcher, provisioner := Name(vmi, KindLauncher), Name(vmi, KindProvisioner)
	if !strings.HasPrefix(launcher, "virt-launcher-web-") || len(launcher) != len("virt-launcher-web-")+5 {
		t.Errorf("the launcher's name is %s", launcher)
	}
	if !strings.HasPrefix(provisioner, "virt-provisioner-web-") || strings.TrimPrefix(provisioner, "virt-provisioner-web-") == strings.TrimPrefix(launcher, "virt-launcher-web-") {
		t.Errorf("the provisioning pod's name is %s, the launcher's %s", provisioner, launcher)
	}
	if again := Name(vmi, KindLauncher); again != launcher {
		t.Errorf("%s, then %s", launcher, again)
	}
	vmi.UID = "11111111-2222-3333-4444-555555555556"
	if next := Name(vmi, KindLauncher); next == launcher {
		t.Errorf("the next VMI's launcher is %s, too", next)
	}
	for _, name := range []string{strings.Repeat("long", 60), strings.Repeat("a", 43) + "." + strings.Repeat("b", 60)} {
		vmi.Name = name
		if long := Name(vmi, KindLauncher); len(long) != nameBase+nameSuffix || len(validation.IsDNS1123Subdomain(long)) > 0 {
			t.Errorf("%s is no name of a pod: %v", long, validation.IsDNS1123Subdomain(long))
		}
	}
}
