package declare

import (
	"maps"
	"testing"
)

func TestPairs(t *testing.T) {
	got, err := Pairs([]string{" NAME:vm", "MOTD:hello", "dear", ":)", "URL:http://x:8080/", "EMPTY:"})
	want := map[string]string{"NAME": "vm", "MOTD": "hello dear :)", "URL": "http://x:8080/", "EMPTY": ""}
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"V1", ":V1"} {
		want := `no key found before "` + bad + `"; pair should be in "KEY:VAL" format`
		if _, err := Pairs([]string{bad, "K:V"}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}
