package hypervisor

import (
	"strings"
	"testing"
)

func TestTheEndOfADumpIsRead(t *testing.T) {
	for details, want := range map[string]string{
		`{"result": {"total": 150, "status": "completed", "completed": 150}}`:                                                   "",
		`{"result": {"total": 150, "status": "failed", "completed": 9}, "error": "dump: failed to save memory: No space left"}`: "No space left",
		`{"result": {"total": 150, "status": "failed", "completed": 9}}`:                                                        "ended it as failed",
		`nonsense`: "nonsense",
	} {
		if got := dumpFailure(details); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: got %q, want %q", details, got, want)
		}
	}
}
