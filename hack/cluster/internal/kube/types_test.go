package kube

import (
	"encoding/json"
	"testing"
)

func TestAPIServiceSaysWhyNobodyAnswers(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "nobody has looked yet",
		`{"status":{"conditions":[{"type":"Available","status":"False","reason":"MissingEndpoints","message":"no addresses"}]}}`: "MissingEndpoints: no addresses",
		`{"status":{"conditions":[{"type":"Available","status":"True","reason":"Passed","message":"all checks passed"}]}}`:       "",
	} {
		var service APIService
		if err := json.Unmarshal([]byte(text), &service); err != nil {
			t.Fatal(err)
		}
		if why := service.Unavailable(); why != want {
			t.Errorf("%s: %q, want %q", text, why, want)
		}
	}
}
