package declare

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// The field's clients look for these very bytes.
func TestLogIsTheFields(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out)
	log.Debug("executing")
	log.Info("creating", "level", "KEPT")
	log.Error(`virtualmachine.kubevirt.io "none" not found & <so on>`)
	for _, want := range []string{
		`"level":"debug","msg":"executing"}`, `"level":"info","msg":"creating","level":"KEPT"}`,
		`"level":"error","msg":"virtualmachine.kubevirt.io \"none\" not found & <so on>"}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing of:\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%s is no JSON", line)
		}
	}
}
