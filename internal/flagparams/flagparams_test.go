package flagparams

import (
	"slices"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	p, err := Read("volume", "name:a,src:ns/b,url:http://h:1/x,size:1Gi,bootorder:2,headers:A:1;B", "name", "src", "url", "size", "bootorder", "headers", "none")
	if err != nil {
		t.Fatal(err)
	}
	size, err := p.Size()
	if err != nil || size.String() != "1Gi" {
		t.Errorf("size %v, %v", size, err)
	}
	order, err := p.BootOrder()
	if err != nil || *order != 2 {
		t.Errorf("bootorder %v, %v", order, err)
	}
	if namespace, name, err := p.RemoteSource("pvc"); namespace != "ns" || name != "b" || err != nil {
		t.Errorf("source %s/%s, %v", namespace, name, err)
	}
	if p.Text("url") != "http://h:1/x" || *p.Optional("name") != "a" || p.Optional("none") != nil || !slices.Equal(p.List("headers"), []string{"A:1", "B"}) || p.List("none") != nil {
		t.Errorf("got %+v", p)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":              "params may not be empty",
		"a":             "params need to have at least one colon: a",
		"src:a,src:b":   `param "src" is given twice`,
		"src:a,other:b": "unknown param(s): other:b; known are src, size, bootorder",
		"size:1Gi":      "src must be specified",
		"src:a/b/c":     `src invalid: "a/b/c" has more than one slash`,
		"src:a/":        "src invalid: name cannot be empty",
		"src:a":         `namespace of pvc "a" must be specified; write src:NAMESPACE/a`,
	} {
		p, err := Read("volume", text, "src", "size", "bootorder")
		if err == nil {
			_, _, err = p.RemoteSource("pvc")
		}
		if err == nil || err.Error() != `failed to parse "--volume" flag: `+want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	p, err := Read("volume", "src:ns/a,size:big,bootorder:0")
	if err != nil {
		t.Fatal(err)
	}
	_, local := p.LocalSource("pvc")
	_, size := p.Size()
	_, order := p.BootOrder()
	for want, got := range map[string]error{`not allowed to specify namespace of pvc "a"`: local, "write for example 10Gi": size, "greater than 0": order} {
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}
