package schema

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type inner struct {
	Words []string `json:"words,omitempty"`
}

type example struct {
	metav1.TypeMeta `json:",inline"`
	Name            string             `json:"name"`
	Size            *resource.Quantity `json:"size,omitempty"`
	Wait            metav1.Duration    `json:"wait,omitempty"` //nolint:modernize // as types of the API have it
	Port            intstr.IntOrString `json:"port,omitempty"` //nolint:modernize // likewise
	Count           int32              `json:"count,omitempty"`
	Data            []byte             `json:"data,omitempty"`
	Again           *example           `json:"again"`
	ByName          map[string]inner   `json:"byName,omitempty"`
	Raw             json.RawMessage    `json:"raw,omitempty"`
	Not             string             `json:"-"`
}

// SwaggerDoc is as generators of the API write it.
func (example) SwaggerDoc() map[string]string {
	return map[string]string{"": "An example.", "name": "Its name.", "again": "Another one."}
}

// object is as types of kinds are.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              inner  `json:"spec"`
	Status            inner  `json:"status"`
	Left              inner  `json:"left,omitzero"`
	Kept              string `json:"kept"`
}

func (object) SwaggerDoc() map[string]string {
	return map[string]string{"": "An object.\n+genclient\n\nOf two paragraphs.", "spec": "What is wanted."}
}

func TestAKindIsFoundAndHasWhatItsServerDemands(t *testing.T) {
	d := New("#/here/")
	d.Beside = true
	d.Kind(object{}, metav1.GroupVersionKind{Group: "g", Version: "v1", Kind: "Object"})
	const at = "io.kubevirt.subresources.github.com.slipway-vm.slipway.controllers.subresource.schema."
	definition := d.Named()[at+"object"]
	properties, _ := definition["properties"].(map[string]Schema)
	got, err := json.Marshal([]any{definition["description"], definition["required"], definition["x-kubernetes-group-version-kind"], properties["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	if want := `["An object.\n\nOf two paragraphs.",["spec","kept"],[{"group":"g","version":"v1","kind":"Object"}],` +
		`{"$ref":"#/here/` + at + `inner","description":"What is wanted."}]`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestATypeIsDescribed(t *testing.T) {
	d := New("#/here/")
	const at = "io.kubevirt.subresources.github.com.slipway-vm.slipway.controllers.subresource.schema."
	if got, _ := json.Marshal(d.Of([]example{})); string(got) != `{"items":{"$ref":"#/here/`+at+`example"},"type":"array"}` {
		t.Errorf("got %s", got)
	}
	got, err := json.MarshalIndent(d.Named(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
 "` + at + `example": {
  "description": "An example.",
  "properties": {
   "again": {
    "allOf": [
     {
      "$ref": "#/here/` + at + `example"
     }
    ],
    "description": "Another one."
   },
   "apiVersion": {
    "description": "APIVersion",
    "type": "string"
   },
   "byName": {
    "additionalProperties": {
     "$ref": "#/here/` + at + `inner"
    },
    "type": "object"
   },
   "count": {
    "format": "int32",
    "type": "integer"
   },
   "data": {
    "format": "byte",
    "type": "string"
   },
   "kind": {
    "description": "Kind",
    "type": "string"
   },
   "name": {
    "description": "Its name.",
    "type": "string"
   },
   "port": {
    "format": "int-or-string",
    "type": "string"
   },
   "raw": {},
   "size": {
    "type": "string"
   },
   "wait": {
    "type": "string"
   }
  },
  "required": [
   "name"
  ],
  "type": "object"
 },
 "` + at + `inner": {
  "properties": {
   "words": {
    "items": {
     "type": "string"
    },
    "type": "array"
   }
  },
  "type": "object"
 }
}`
	// What Kubernetes' own types say of themselves is theirs to change.
	words := map[string]map[string]any{}
	if err := json.Unmarshal(got, &words); err != nil {
		t.Fatal(err)
	}
	for name, short := range map[string]string{"apiVersion": "APIVersion", "kind": "Kind"} {
		properties, _ := words[at+"example"]["properties"].(map[string]any)
		property, _ := properties[name].(map[string]any)
		if text, _ := property["description"].(string); len(text) < len(short) || text[:len(short)] != short {
			t.Errorf("%s is described as %q", name, text)
		}
		property["description"] = short
	}
	if got, _ = json.MarshalIndent(words, "", " "); string(got) != want {
		t.Errorf("got %s", got)
	}
}
