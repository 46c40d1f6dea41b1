package cached

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// A file is replaced as a whole. A device is not: while the entry is written onto it, it is neither
// the disk before nor the result, and a pod that is killed then leaves it so. The claim says it
// meanwhile, by stepcache.AnnotationHalf; the next try of the step finishes what was begun. A file's
// claim says it, too: its next try knows by it whether the disk is the one before or came already.

// errHalf is the error of a device that was left half rewritten.
var errHalf = errors.New("the claim's disk is neither the one before nor the cached one; a retry of the task finishes it")

// put puts the entry's disk into the claim, which is as it was before when that fails, unless the
// error is errHalf.
func (d *diskRun) put(ctx context.Context, host *stepcache.Host, entry *stepcache.Entry) error {
	half := fmt.Sprintf("%s %s %s", d.base, entry.Key, entry.Digest)
	if err := d.annotate(ctx, map[string]string{stepcache.AnnotationHalf: half, names.AnnotationDigest: ""}); err != nil {
		return err
	}
	err := d.restore(ctx, host, entry)
	if err != nil && !errors.Is(err, errHalf) {
		return errors.Join(err, d.unmark(ctx))
	}
	return err
}

// restore has a pod put the entry's disk into the claim.
func (d *diskRun) restore(ctx context.Context, host *stepcache.Host, entry *stepcache.Entry) error {
	done, err := d.store.Restore(ctx, host, entry, stepcache.Target{Claim: d.Claim, Block: d.Block})
	if done.Half && err != nil {
		return fmt.Errorf("%w: %w", errHalf, err)
	}
	if err != nil {
		return err
	}
	d.store.Log.Info("taken from the step cache", "entry", entry.Name, "by", done.How, "of", entry.Filled, "run", entry.Run)
	return nil
}

// unmark takes the mark from a claim that has the disk of before. With the mark a device must not be worked on.
func (d *diskRun) unmark(ctx context.Context) error {
	err := d.annotate(ctx, map[string]string{stepcache.AnnotationHalf: ""})
	if err != nil && d.Block {
		return fmt.Errorf("%w: %w", errHalf, err)
	}
	return err
}

// noteHit writes onto the claim what its content is now. A device must not stay marked: the next
// task would finish what is finished, over whatever a VM wrote meanwhile.
func (d *diskRun) noteHit(ctx context.Context, digest string) error {
	err := d.annotate(ctx, map[string]string{names.AnnotationDigest: digest, stepcache.AnnotationHalf: "", stepcache.AnnotationDone: d.done(true)})
	if err != nil && !d.Block {
		d.store.Log.Warn("the claim's content is not noted on it", "claim", d.Claim, "cause", err.Error())
		return nil
	}
	return err
}

// finish ends what an earlier try of this step began, whatever the mode: a device's disk before is
// gone. It is no hit where the disk before is there, and all is to do.
func (d *diskRun) finish(ctx context.Context, half string) (digest string, hit bool, err error) {
	base, rest, _ := strings.Cut(half, " ")
	wanted, content, _ := strings.Cut(rest, " ")
	if err := d.store.Settle(ctx, d.Claim); err != nil {
		return "", false, fmt.Errorf("claim %s: %w", d.Claim, err)
	}
	key, host, err := d.keyOn(ctx, base)
	if !d.Block {
		return d.came(ctx, err == nil && string(key) == wanted, content)
	}
	if err != nil {
		return "", false, fmt.Errorf("claim %s: %w: %w", d.Claim, errHalf, err)
	}
	if string(key) != wanted {
		return "", false, declare.Coded(declare.CodeUsage, fmt.Errorf(
			"pvc: the disk of claim %s is half-way to the result of another step, whose pod was killed: run that step again, with the same parameters, or make the claim anew", d.Claim))
	}
	d.store.Log.Info("finishing what an earlier try began: putting a cached result onto the device", "claim", d.Claim)
	for {
		entry, err := d.finishable(ctx, key)
		if err != nil {
			return "", false, err
		}
		err = d.restore(ctx, host, entry)
		if errors.Is(err, stepcache.ErrPoisoned) && !errors.Is(err, errHalf) {
			err = d.remove(ctx, entry, err)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return "", false, fmt.Errorf("claim %s: %w", d.Claim, err)
		}
		return entry.Digest, true, d.noteHit(ctx, entry.Digest)
	}
}

// came looks whether the entry's disk is in the claim's file, which it is as a whole or not at all.
func (d *diskRun) came(ctx context.Context, ours bool, content string) (digest string, hit bool, err error) {
	if found, err := stepcache.DiskDigest(ctx, d.Disk); ours && err == nil && found == content {
		d.store.Log.Info("an earlier try of the step put a cached result into the claim", "claim", d.Claim)
		return content, true, d.noteHit(ctx, content)
	}
	if err := d.unmark(ctx); err != nil {
		d.store.Log.Warn("the claim stays marked", "claim", d.Claim, "cause", err.Error())
	}
	return "", false, nil
}

// finishable returns an entry of the key, in use.
func (d *diskRun) finishable(ctx context.Context, key stepcache.Key) (*stepcache.Entry, error) {
	for {
		entry, err := d.store.Find(ctx, stepcache.Query{Key: key})
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w: %w", d.Claim, errHalf, err)
		}
		if entry == nil {
			return nil, declare.Coded(declare.CodeUsage, fmt.Errorf(
				"pvc: the disk of claim %s is half-way to a cached result that was deleted since: make the claim anew, and run the task again", d.Claim))
		}
		ok, err := d.store.Use(ctx, entry)
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w: %w", d.Claim, errHalf, err)
		}
		if ok {
			return entry, nil
		}
	}
}
