package generatesshkeys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Defaults of ssh-keygen as the field's task calls it.
const (
	defaultType = "rsa"
	defaultBits = 4096
)

// keyPair is a new pair of keys, as files.
type keyPair struct {
	private, public []byte
	// name is the key under which the public half is kept.
	name string
}

// keygenOptions are the options of ssh-keygen that mean something here.
type keygenOptions struct {
	kind    string
	bits    int
	comment string
}

func parseKeygenOptions(text string) (keygenOptions, error) {
	o := keygenOptions{kind: defaultType}
	words := strings.Fields(text)
	for i := 0; i < len(words); i += 2 {
		if i+1 == len(words) {
			return o, fmt.Errorf("%s needs a value", words[i])
		}
		value := words[i+1]
		switch words[i] {
		case "-t":
			o.kind = value
		case "-C":
			o.comment = value
		case "-b":
			bits, err := strconv.Atoi(value)
			if err != nil {
				return o, fmt.Errorf("-b %s is no number of bits", value)
			}
			o.bits = bits
		default:
			return o, fmt.Errorf("%s is not supported; -t, -b and -C are", words[i])
		}
	}
	return o, nil
}

// generate makes a pair as ssh-keygen would with these options.
func generate(options string) (*keyPair, error) {
	o, err := parseKeygenOptions(options)
	if err != nil {
		return nil, err
	}
	private, err := newKey(o)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, o.comment)
	if err != nil {
		return nil, fmt.Errorf("encoding the private key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, fmt.Errorf("deriving the public key: %w", err)
	}
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	if o.comment != "" {
		public += " " + o.comment
	}
	return &keyPair{private: pem.EncodeToMemory(block), public: []byte(public + "\n")}, nil
}

func newKey(o keygenOptions) (crypto.PrivateKey, error) {
	switch o.kind {
	case "rsa":
		if o.bits == 0 {
			o.bits = defaultBits
		}
		if o.bits < 2048 || o.bits > 16384 {
			return nil, fmt.Errorf("-b %d: an RSA key has 2048 to 16384 bits", o.bits)
		}
		key, err := rsa.GenerateKey(rand.Reader, o.bits)
		if err != nil {
			return nil, fmt.Errorf("making an RSA key: %w", err)
		}
		return key, nil
	case "ecdsa":
		curve, ok := map[int]elliptic.Curve{0: elliptic.P256(), 256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521()}[o.bits]
		if !ok {
			return nil, fmt.Errorf("-b %d: an ECDSA key has 256, 384 or 521 bits", o.bits)
		}
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making an ECDSA key: %w", err)
		}
		return key, nil
	case "ed25519":
		if o.bits != 0 && o.bits != 256 {
			return nil, errors.New("-b: an Ed25519 key has one size; leave it out")
		}
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making an Ed25519 key: %w", err)
		}
		return key, nil
	}
	return nil, fmt.Errorf("-t %s is not supported; rsa, ecdsa and ed25519 are", o.kind)
}
