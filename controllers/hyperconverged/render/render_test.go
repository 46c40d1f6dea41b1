package render

import (
	"strings"
	"testing"
)

func TestWhatIsDecodedIsTheCallersOwn(t *testing.T) {
	stream := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n")
	first, err := Decode(stream)
	if err != nil || len(first) != 2 {
		t.Fatalf("%d objects, %v; want 2", len(first), err)
	}
	first[0].SetName("changed")
	first[1].SetLabels(map[string]string{"changed": "yes"})
	again, err := Decode(stream)
	if err != nil || len(again) != 2 {
		t.Fatalf("%d objects, %v; want 2", len(again), err)
	}
	if again[0].GetName() != "a" || again[1].GetLabels() != nil {
		t.Errorf("a change of what was decoded before is in %v and %v", again[0].Object, again[1].Object)
	}
}

func TestAStreamThatCannotBeDecodedIsRefusedEachTime(t *testing.T) {
	for range 2 {
		if _, err := Decode([]byte("metadata: {name: a}\n")); err == nil || !strings.Contains(err.Error(), "document 1 has no kind") {
			t.Errorf("an object without a kind: %v", err)
		}
	}
}
