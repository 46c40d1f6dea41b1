package stepcache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/slipway-vm/slipway/internal/digest"
)

// Domains of the hashes. A change of what a key is made of, or of what a step does with it,
// raises the number, and everything that was cached before is a miss.
const (
	domainStep   = "slipway-step-1"
	domainImport = "slipway-import-2"
	domainRecipe = "slipway-recipe-1"
)

// Prefixes of keys, one for each domain.
const (
	prefixStep   = "step1:"
	prefixImport = "import2:"
	prefixRecipe = "recipe1:"
)

// Key names the result of a step: two steps of the same key leave the same disk, as far as a
// step is decided by what goes into it. It is a prefix and 64 hexadecimal digits.
type Key string

// labelDigits is how long the value of a label may be.
const labelDigits = 63

// digits returns the key without its prefix.
func (k Key) digits() string {
	_, digits, _ := strings.Cut(string(k), ":")
	return digits
}

// Label is the key as the value of a label: its first 63 digits.
func (k Key) Label() string { return k.digits()[:min(labelDigits, len(k.digits()))] }

// Short is enough of the key to tell it from others by eye.
func (k Key) Short() string { return k.digits()[:min(12, len(k.digits()))] }

// Step is all that decides what a tool leaves of a disk.
type Step struct {
	// Tool is the program, such as virt-customize.
	Tool string
	// Image is the digest of the image that the tool is in: "sha256:" and 64 digits.
	Image string
	// Base is the digest of the disk before the step, as internal/digest writes it.
	Base string
	// Commands are the tool's commands, byte by byte; only line ends at the end do not count.
	Commands string
	// Options are the tool's further arguments, in their order.
	Options []string
	// Inputs are the files that the commands may use.
	Inputs []Input
}

// Key returns the step's key, or ErrUncacheable when something that decides it is not known.
func (s Step) Key() (Key, error) {
	switch {
	case !digest.Known(s.Base):
		return "", fmt.Errorf("%w: the digest of the disk before it is not known", ErrUncacheable)
	case !isSHA256(s.Image):
		return "", fmt.Errorf("%w: the digest of the tool's image is not known", ErrUncacheable)
	}
	e := newEncoder(domainStep)
	e.text(s.Tool)
	e.text(s.Image)
	e.text(s.Base)
	e.text(strings.TrimRight(s.Commands, "\r\n"))
	e.texts(s.Options)
	e.inputs(s.Inputs)
	return e.key(prefixStep), nil
}

// Recipe is all that decides what a whole pipeline publishes, as far as it is known before any
// of its steps has run. Two runs of the same recipe publish the same thing.
type Recipe struct {
	// Source is the key of the first disk.
	Source Key
	// Steps are the steps that change it, in their order; each one's Base is left empty.
	Steps []Step
	// Also is what else counts: the script that proves the result, the labels that it gets.
	Also []string
}

// Key returns the recipe's key, or ErrUncacheable.
func (r Recipe) Key() (Key, error) {
	if r.Source == "" {
		return "", fmt.Errorf("%w: nothing tells the source from another version of it", ErrUncacheable)
	}
	e := newEncoder(domainRecipe)
	e.text(string(r.Source))
	e.count(len(r.Steps))
	for _, s := range r.Steps {
		if !isSHA256(s.Image) {
			return "", fmt.Errorf("%w: the digest of the tool's image is not known", ErrUncacheable)
		}
		e.text(s.Tool)
		e.text(s.Image)
		e.text(strings.TrimRight(s.Commands, "\r\n"))
		e.texts(s.Options)
		e.inputs(s.Inputs)
	}
	e.texts(r.Also)
	return e.key(prefixRecipe), nil
}

// isSHA256 reports whether s is "sha256:" and 64 hexadecimal digits.
func isSHA256(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(digits)
	return ok && err == nil && len(raw) == sha256.Size
}

// encoder hashes values so that no two lists of them look the same: each one follows its length.
type encoder struct{ sum hash.Hash }

func newEncoder(domain string) encoder {
	e := encoder{sha256.New()}
	e.text(domain)
	return e
}

func (e encoder) count(n int) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(n))
	_, _ = e.sum.Write(length[:]) // a hash takes everything
}

func (e encoder) text(s string) {
	e.count(len(s))
	_, _ = io.WriteString(e.sum, s)
}

func (e encoder) texts(list []string) {
	e.count(len(list))
	for _, s := range list {
		e.text(s)
	}
}

func (e encoder) inputs(inputs []Input) {
	e.count(len(inputs))
	for _, i := range inputs {
		e.text(i.Path)
		e.count(int(i.Mode))
		e.text(i.Link)
		e.text(i.Digest)
	}
}

func (e encoder) key(prefix string) Key {
	return Key(prefix + hex.EncodeToString(e.sum.Sum(nil)))
}
