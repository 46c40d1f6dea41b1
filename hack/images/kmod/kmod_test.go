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
		unsigned, signature := kmod.Split([]byte(tc.module))
		if string(unsigned) != tc.want || string(unsigned)+string(signature) != tc.module {
			t.Errorf("%s: %q and %q, want %q and the rest", tc.name, unsigned, signature, tc.want)
		}
	}
}
