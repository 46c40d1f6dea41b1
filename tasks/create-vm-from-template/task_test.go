package createvmfromtemplate

import (
	"maps"
	"testing"
)

func TestTemplateParams(t *testing.T) {
	got, err := templateParams([]string{"NAME:vm", "MOTD:hello", "dear", "reader", "URL:http://x:8080/"})
	want := map[string]string{"NAME": "vm", "MOTD": "hello dear reader", "URL": "http://x:8080/"}
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	if _, err := templateParams([]string{"alone"}); err == nil {
		t.Fatal("an item without a key was taken")
	}
}
