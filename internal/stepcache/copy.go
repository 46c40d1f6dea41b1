package stepcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/digest"
)

// How the content of an entry came into a claim.
const (
	HowReflink = "reflink" // it shares its blocks
	HowCopy    = "copy"    // its data was copied, holes were not
	HowRewrite = "rewrite" // what differed was written onto the device
)

// Work is what a worker pod does with an entry's disk.
type Work struct {
	// Entry is the path of the entry's disk, Digest what its content must be.
	Entry, Digest string
	// Target is the path of the disk file to replace, or with InPlace of the device to write onto;
	// empty to look at the entry only.
	Target  string
	InPlace bool
	// Report is the file that takes what the work came to: the termination log.
	Report string
}

// report is what a worker pod ends with.
type report struct {
	How      string `json:"how,omitempty"`
	Poisoned bool   `json:"poisoned,omitempty"`
	// Half says that the target is neither the disk before nor the entry's.
	Half    bool   `json:"half,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// ErrPoisoned is the error of an entry whose content is not the one that was cached.
var ErrPoisoned = errors.New("the entry's content is not what was cached")

// Do does the work and reports what it came to. A file is replaced as a whole or not at all; a
// device is changed only once the entry's content was found right, and says when it is half done.
func (w Work) Do(ctx context.Context) error {
	how, err := w.do(ctx)
	half := errors.Is(err, errHalf)
	r := report{How: how, Poisoned: errors.Is(err, ErrPoisoned) && !half, Half: half}
	if err != nil {
		r.Failure = err.Error()
	}
	data, encodeErr := json.Marshal(r)
	if encodeErr == nil && w.Report != "" {
		encodeErr = os.WriteFile(w.Report, data, 0o600)
	}
	if encodeErr != nil {
		encodeErr = fmt.Errorf("reporting what the work came to: %w", encodeErr)
	}
	return errors.Join(err, encodeErr)
}

func (w Work) do(ctx context.Context) (string, error) {
	if w.Target == "" {
		found, err := digestLike(ctx, w.Entry, w.Digest)
		if err != nil {
			return "", err
		}
		return "", w.check(found)
	}
	if w.InPlace {
		return HowRewrite, w.rewrite(ctx)
	}
	staged := filepath.Join(filepath.Dir(w.Target), "."+filepath.Base(w.Target)+".step-cache")
	how, found, err := w.copyDisk(ctx, staged)
	if err == nil {
		err = w.check(found)
	}
	if err == nil {
		err = replace(staged, w.Target)
	}
	if err != nil {
		if removeErr := os.Remove(staged); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("removing what was copied: %w", removeErr))
		}
		return "", err
	}
	return how, nil
}

func (w Work) check(found string) error {
	if found != w.Digest {
		return fmt.Errorf("%w: want %s, got %s", ErrPoisoned, w.Digest, found)
	}
	return nil
}

// copyDisk makes the file to with the content of the entry's disk, and returns how and the digest of
// what was read.
func (w Work) copyDisk(ctx context.Context, to string) (how, found string, err error) {
	tree, err := digest.Like(w.Digest)
	if err != nil {
		return "", "", fmt.Errorf("copying the entry's disk: %w", err)
	}
	source, err := os.Open(w.Entry)
	if err != nil {
		return "", "", fmt.Errorf("opening the entry's disk: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o660)
	if err != nil {
		return "", "", fmt.Errorf("making the file for the copy: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if unix.IoctlFileClone(int(target.Fd()), int(source.Fd())) == nil {
		found, err = sum(ctx, to, tree) // of the copy: it is what is used
		return HowReflink, found, err
	}
	size, err := eachBlock(ctx, source, func(index int64, block []byte) error {
		if digest.IsZero(block) {
			return nil
		}
		tree.Put(index, block)
		if _, err := target.WriteAt(block, index*digest.BlockSize); err != nil {
			return fmt.Errorf("writing at %d: %w", index*digest.BlockSize, err)
		}
		return nil
	})
	if err != nil {
		return "", "", fmt.Errorf("copying the entry's disk: %w", err)
	}
	if err := errors.Join(target.Truncate(size), target.Sync()); err != nil {
		return "", "", fmt.Errorf("ending the copy of the entry's disk: %w", err)
	}
	return HowCopy, tree.Sum(size), nil
}

// replace puts staged in the place of the file target, with that one's permissions.
func replace(staged, target string) error {
	before, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("looking at the disk to replace: %w", err)
	}
	if err := os.Chmod(staged, before.Mode().Perm()); err != nil {
		return fmt.Errorf("replacing the disk: %w", err)
	}
	if err := os.Rename(staged, target); err != nil {
		return fmt.Errorf("replacing the disk: %w", err)
	}
	folder, err := os.Open(filepath.Dir(target))
	if err != nil {
		return fmt.Errorf("replacing the disk: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("replacing the disk: %w", err)
	}
	return nil
}
