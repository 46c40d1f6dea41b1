package manifest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/controllers/hyperconverged"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

func options() hyperconverged.Options {
	return hyperconverged.Options{
		Namespace: "vms", Version: "v1", SlipwayImage: "registry.test/slipway:1",
		LauncherImage: "registry.test/launcher:1", GuestfsImage: "registry.test/guestfs:1",
	}
}

func TestManifestInstallsTheOperator(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, options()); err != nil {
		t.Fatal(err)
	}
	objects, err := render.Decode(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for i, object := range objects {
		found[object.GetKind()+"/"+object.GetName()] = true
		encoded, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) >= maxObject {
			t.Errorf("%s %s has %d bytes", object.GetKind(), object.GetName(), len(encoded))
		}
		if i == 0 && object.GetKind() != "Namespace" {
			t.Errorf("the first object is a %s; kubectl applies in this order", object.GetKind())
		}
		if namespace := object.GetNamespace(); namespace != "" && namespace != "vms" {
			t.Errorf("%s %s is in namespace %s", object.GetKind(), object.GetName(), namespace)
		}
	}
	for _, want := range []string{
		"Namespace/vms", "CustomResourceDefinition/hyperconvergeds.hco.kubevirt.io", "Deployment/virt-operator",
		"ServiceAccount/virt-operator", "ClusterRole/virt-operator", "ClusterRole/virt-operator-grants", "Service/virt-operator-webhook",
	} {
		if !found[want] {
			t.Errorf("the manifest lacks %s", want)
		}
	}
	if strings.Contains(out.String(), "SLIPWAY_KUBELET_ROOT") {
		t.Error("the kubelet's root is set although it is to be found out")
	}
}

func TestManifestNamesMissingImages(t *testing.T) {
	incomplete := options()
	incomplete.LauncherImage = ""
	err := Write(&bytes.Buffer{}, incomplete)
	if err == nil || !strings.Contains(err.Error(), "SLIPWAY_LAUNCHER_IMAGE") {
		t.Errorf("got %v, want an error that names the missing image", err)
	}
}

func TestOperatorHasWhatItGives(t *testing.T) {
	planned, err := hyperconverged.Planned(options())
	if err != nil {
		t.Fatal(err)
	}
	role, err := grants(options())
	if err != nil {
		t.Fatal(err)
	}
	given, err := json.Marshal(role.Object["rules"])
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range planned {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		for _, rule := range object.Object["rules"].([]any) {
			encoded, err := json.Marshal(rule)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(given, encoded) {
				t.Errorf("the operator cannot give ClusterRole %s the rule %s", object.GetName(), encoded)
			}
		}
	}
}
