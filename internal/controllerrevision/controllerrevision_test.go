package controllerrevision_test

import (
	"testing"

	"github.com/slipway-vm/slipway/internal/controllerrevision"
)

func TestKeysAreInOrderAndNumbersAreKept(t *testing.T) {
	value := struct {
		Zone  string         `json:"zone"`
		Bytes int64          `json:"bytes"`
		Apart map[string]any `json:"apart"`
	}{Zone: "a<b", Bytes: 1<<62 + 1, Apart: map[string]any{"y": int64(1), "x": "z"}}
	data, err := controllerrevision.Data(&value)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(data.Raw), `{"apart":{"x":"z","y":1},"bytes":4611686018427387905,"zone":"a\u003cb"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
