package cached

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// DiskStep is a step that changes the disk of a claim in place.
type DiskStep struct {
	// Tool is the program, Commands and Options what it is given, as the parameters have them: all
	// that decides what it does, and nothing that does not, such as how much it prints.
	Tool, Commands, Options string
	// Disk is where the disk is in this pod, Claim the claim that it is in.
	Disk, Claim string
}

// DataFolders are where the files of a task's optional workspaces are.
func DataFolders() []string {
	var folders []string
	for n := range 10 {
		folders = append(folders, fmt.Sprintf("/data%02d", n+1))
	}
	return folders
}

// Disk does the step by taking its cached result, or else by work, and writes the results digest and cached.
// An error of work is returned as it is.
func Disk(ctx context.Context, call *declare.Call, step DiskStep, work func(context.Context) error) error {
	options, err := Read(call)
	if err != nil {
		return err
	}
	d := &diskRun{DiskStep: step, call: call, store: Store(call), options: options, begun: time.Now(), work: work}
	digest, hit, err := d.run(ctx)
	if err != nil {
		return err
	}
	return errors.Join(call.Result(ResultDigest, digest), call.Result(ResultCached, fmt.Sprint(hit)))
}

// NewStep is a tool's step without its base, as every task that computes its key has to write it.
func NewStep(tool, options, commands string, host *stepcache.Host, inputs []stepcache.Input) stepcache.Step {
	step := stepcache.Step{Tool: tool, Image: host.ImageDigest, Commands: commands, Inputs: inputs}
	if options = strings.TrimSpace(options); options != "" {
		step.Options = []string{options}
	}
	return step
}

// diskRun is one run of a DiskStep.
type diskRun struct {
	DiskStep
	call    *declare.Call
	store   *stepcache.Store
	options Options
	begun   time.Time
	work    func(context.Context) error
}

func (d *diskRun) run(ctx context.Context) (digest string, hit bool, err error) {
	if d.call.Client == nil {
		d.store.Log.Warn("the step cache is not used", "cause", "this pod has no access to the API")
		return "", false, d.work(ctx)
	}
	if err := d.checkClaim(ctx); err != nil {
		return "", false, err
	}
	if d.options.Mode == Off {
		d.note(ctx, "")
		return "", false, d.work(ctx)
	}
	key, host, err := d.key(ctx)
	if err != nil {
		d.store.Log.Warn("the step cache is not used", "cause", err.Error())
		d.note(ctx, "")
		return "", false, d.work(ctx)
	}
	entry, lock, err := d.take(ctx, key, host)
	if err != nil {
		if ctx.Err() != nil {
			return "", false, fmt.Errorf("looking into the step cache: %w", err)
		}
		d.store.Log.Warn("the step cache is not used", "cause", err.Error())
	}
	if entry != nil {
		d.note(ctx, entry.Digest)
		return entry.Digest, true, nil
	}
	defer release(ctx, d.store.Log, lock)
	d.note(ctx, "")
	if err := d.work(ctx); err != nil {
		return "", false, err
	}
	digest, err = stepcache.DiskDigest(ctx, d.Disk)
	if err != nil {
		d.store.Log.Warn("the step's result is not kept", "cause", err.Error())
		return "", false, nil
	}
	d.note(ctx, digest)
	if lock != nil {
		save(ctx, d.store, lock, stepcache.Result{Step: d.Tool, Claim: d.Claim, Digest: digest})
	}
	return digest, false, nil
}

// checkClaim refuses to change an entry of the cache. That the claim cannot be read is the work's to say.
func (d *diskRun) checkClaim(ctx context.Context) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := d.store.Client.Get(ctx, client.ObjectKey{Namespace: d.call.Namespace, Name: d.Claim}, claim)
	if err == nil && claim.Labels[stepcache.LabelState] != "" {
		return declare.Coded(declare.CodeUsage, fmt.Errorf("pvc: claim %s is an entry of the step cache, which nothing may change; clone it and name the clone", d.Claim))
	}
	return nil
}

// key computes the step's key from the disk and all else as it is now.
func (d *diskRun) key(ctx context.Context) (stepcache.Key, *stepcache.Host, error) {
	host, err := Host(ctx, d.store)
	if err != nil {
		return "", nil, err
	}
	inputs, err := stepcache.Inputs(DataFolders()...)
	if err != nil {
		return "", nil, err
	}
	base, err := stepcache.DiskDigest(ctx, d.Disk)
	if err != nil {
		return "", nil, err
	}
	step := NewStep(d.Tool, d.Options, d.Commands, host, inputs)
	step.Base = base
	key, err := step.Key()
	return key, host, err
}

// take puts a cached result into the claim and returns its entry; or it returns the right to do
// the work, or neither when there is an entry that cannot be had.
func (d *diskRun) take(ctx context.Context, key stepcache.Key, host *stepcache.Host) (*stepcache.Entry, *stepcache.Lock, error) {
	query := stepcache.Query{Key: key, Since: d.options.Since(d.begun)}
	if info, err := os.Stat(d.Disk); err == nil && !info.Mode().IsRegular() {
		// A device cannot be replaced as a whole: a copy that ends half-way would leave neither disk.
		d.store.Log.Info("a cached result is not put into a claim of volumeMode Block; doing the step")
		query.Since = d.begun.Add(time.Hour * 24 * 365)
	}
	for {
		entry, lock, err := d.store.Take(ctx, query)
		if entry == nil || err != nil {
			return nil, lock, err
		}
		how, err := d.store.Restore(ctx, host, entry, d.Claim)
		switch {
		case err == nil:
			d.store.Log.Info("taken from the step cache", "entry", entry.Name, "by", how, "of", entry.Filled, "run", entry.Run)
			return entry, nil, nil
		case errors.Is(err, stepcache.ErrPoisoned):
			d.store.Log.Warn("removing an entry of the step cache", "entry", entry.Name, "cause", err.Error())
			if err := d.store.Remove(ctx, entry); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, err
		}
	}
}

// note writes onto the claim what its content is; nothing while it changes. Without it clones of
// the claim would be taken for the disk that was imported.
func (d *diskRun) note(ctx context.Context, digest string) {
	value := "null"
	if digest != "" {
		value = fmt.Sprintf("%q", digest)
	}
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = d.call.Namespace, d.Claim
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, names.AnnotationDigest, value)
	if err := d.store.Client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(stepcache.FieldManager)); err != nil {
		d.store.Log.Warn("the claim's content is not noted on it", "claim", d.Claim, "cause", err.Error())
	}
}
