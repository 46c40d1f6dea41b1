package kmod_test

import (
	"testing"

	"github.com/slipway-vm/slipway/hack/images/kmod"
)

func TestASignatureIsTakenAway(t *testing.T) {
	const mark = "~Module signature appended~\n"
	told := "\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x03"
	for _, tc := range []struct{ name, module, want string }{
		{"signed", "\x7fELF code" + "sig" + told + mark, "\x7fELF code"},
		{"unsigned", "\x7fELF code", "\x7fELF code"},
		{"no room for what tells of it", mark, mark},
		{"longer than the module", "si" + told + mark, "si" + told + mark},
	} {
		if got := string(kmod.Unsigned([]byte(tc.module))); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
