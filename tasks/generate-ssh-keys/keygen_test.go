package generatesshkeys

import (
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func TestGenerateMakesAPair(t *testing.T) {
	for options, kind := range map[string]string{
		"-t ed25519 -C me@example": "ssh-ed25519", "-t ecdsa -b 384": "ecdsa-sha2-nistp384", "-b 2048": "ssh-rsa",
	} {
		keys, err := generate(options)
		if err != nil {
			t.Fatalf("%q: %v", options, err)
		}
		signer, err := ssh.ParsePrivateKey(keys.private)
		if err != nil {
			t.Fatalf("%q: %v", options, err)
		}
		public, comment, _, _, err := ssh.ParseAuthorizedKey(keys.public)
		if err != nil || public.Type() != kind || string(public.Marshal()) != string(signer.PublicKey().Marshal()) {
			t.Errorf("%q made %s, %v", options, keys.public, err)
		}
		if strings.Contains(options, "-C") && comment != "me@example" {
			t.Errorf("%q: comment %q", options, comment)
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	for options, want := range map[string]string{
		"-t dsa": "not supported", "-b 512": "2048 to 16384", "-b x": "no number", "-f /etc/x": "-f is not supported", "-t": "needs a value", "-t ecdsa -b 100": "256, 384 or 521",
	} {
		if _, err := generate(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
}

func TestConnectionOptions(t *testing.T) {
	options, err := connectionOptions([]string{"user:debian", "host-public-key: ssh-ed25519 AA:BB"})
	if err != nil || string(options["user"]) != "debian" || string(options["host-public-key"]) != "ssh-ed25519 AA:BB" {
		t.Fatal(options, err)
	}
	if _, err := connectionOptions([]string{"user"}); err == nil {
		t.Fatal("an item without a colon was taken")
	}
}
