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
	"slices"
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
	name        string
	fingerprint string
}

// keygenOptions are the options of ssh-keygen that mean something here.
type keygenOptions struct {
	kind       string
	bits       int
	comment    string
	passphrase string
	// rounds says that a number of rounds for the passphrase was asked for.
	rounds bool
}

// parseKeygenOptions reads options as a shell would give them to ssh-keygen. comment is the key's
// comment when they name none.
func parseKeygenOptions(text, comment string) (keygenOptions, error) {
	o := keygenOptions{kind: defaultType, comment: comment}
	words, err := splitWords(text)
	if err != nil {
		return o, err
	}
	for i := 0; i < len(words); i++ {
		option := words[i]
		if option == "-q" {
			continue // it prints nothing anyway
		}
		if !slices.Contains([]string{"-t", "-b", "-C", "-N", "-a"}, option) {
			return o, fmt.Errorf("unknown option -- %s; -t, -b, -C, -N, -a and -q are known", strings.TrimLeft(option, "-"))
		}
		if i+1 == len(words) {
			return o, fmt.Errorf("option requires an argument -- %s", option[1:])
		}
		i++
		if err := o.set(option, words[i]); err != nil {
			return o, err
		}
	}
	if o.rounds && o.passphrase != "" {
		return o, errors.New("-a with a passphrase (-N) is not supported; leave -a out, and the usual number of rounds is taken")
	}
	return o, nil
}

func (o *keygenOptions) set(option, value string) error {
	switch option {
	case "-t":
		o.kind = value
	case "-C":
		o.comment = value
	case "-N":
		o.passphrase = value
	case "-a":
		if rounds, err := strconv.Atoi(value); err != nil || rounds < 1 {
			return fmt.Errorf("-a %s is no number of rounds", value)
		}
		o.rounds = true
	case "-b":
		bits, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("-b %s is no number of bits", value)
		}
		o.bits = bits
	}
	return nil
}

// splitWords splits a line at spaces outside of quotes, which it takes away.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, begun := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// generate makes a pair as ssh-keygen would with these options.
func generate(o keygenOptions) (*keyPair, error) {
	private, err := newKey(o)
	if err != nil {
		return nil, err
	}
	block, err := encode(private, o)
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
	return &keyPair{
		private: pem.EncodeToMemory(block), public: []byte(public + "\n"), fingerprint: ssh.FingerprintSHA256(signer.PublicKey()),
	}, nil
}

func encode(private crypto.PrivateKey, o keygenOptions) (*pem.Block, error) {
	if o.passphrase != "" {
		return ssh.MarshalPrivateKeyWithPassphrase(private, o.comment, []byte(o.passphrase)) //nolint:wrapcheck // generate says what it does
	}
	return ssh.MarshalPrivateKey(private, o.comment) //nolint:wrapcheck // generate says what it does
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
