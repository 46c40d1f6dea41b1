package modifydataobject

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	object, err := decode("apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {generateName: a-}\nspec: {source: {blank: {}}}\n")
	if err != nil || object.GetGenerateName() != "a-" {
		t.Fatal(object, err)
	}
	for manifest, want := range map[string]string{
		"kind: Pod\napiVersion: v1\n":                                                         "could not identify data object, wrong group or kind",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {}\n":               "invalid: metadata.name: Required value: name",
		"metadata: {name: a}\n":                                                               "could not read data object manifest",
		"apiVersion: unsupported\nkind: DataSource\n":                                         "could not identify data object, wrong group or kind",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: unsupported\n":                            "could not identify data object, wrong group or kind",
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n":                                  "could not identify data object, wrong group or kind",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {name: a}\nspce: 1": "unknown field",
		"{":  "could not read data object manifest",
		"ab": "could not read data object manifest",
	} {
		if _, err := decode(manifest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", manifest, err, want)
		}
	}
}
