package cached

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// Block says that the disk is a device.
	Block bool
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
	// base is the digest of the disk before the step, and stepKey the step's key, once it is computed.
	base    string
	stepKey stepcache.Key
}

func (d *diskRun) run(ctx context.Context) (digest string, hit bool, err error) {
	if d.call.Client == nil {
		d.store.Log.Warn("the step cache is not used", "cause", "this pod has no access to the API")
		return "", false, d.work(ctx)
	}
	claim, err := d.checkClaim(ctx)
	if err != nil {
		return "", false, err
	}
	if by, rest, _ := strings.Cut(claim[stepcache.AnnotationDone], " "); d.call.TaskRunUID != "" && by == string(d.call.TaskRunUID) {
		return d.resume(ctx, rest)
	}
	if half := claim[stepcache.AnnotationHalf]; half != "" {
		if digest, hit, err := d.finish(ctx, half); hit || err != nil {
			return digest, hit, err
		}
	}
	if d.options.Mode == Off {
		return "", false, d.doWork(ctx)
	}
	key, host, err := d.key(ctx)
	if err != nil {
		d.store.Log.Warn("the step cache is not used", "cause", err.Error())
		return "", false, d.doWork(ctx)
	}
	entry, lock, err := d.take(ctx, key, host)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, errHalf) {
			return "", false, fmt.Errorf("looking into the step cache: %w", err)
		}
		d.store.Log.Warn("the step cache is not used", "cause", err.Error())
	}
	if entry != nil {
		return entry.Digest, true, d.noteHit(ctx, entry.Digest)
	}
	defer release(ctx, d.store.Log, lock)
	if err := d.doWork(ctx); err != nil {
		return "", false, err
	}
	return d.keep(ctx, lock), false, nil
}

// doWork does the step, and notes on the claim that it is done: a retry does not do it again.
func (d *diskRun) doWork(ctx context.Context) error {
	d.note(ctx, "")
	if err := d.work(ctx); err != nil {
		return err
	}
	if err := d.annotate(ctx, map[string]string{stepcache.AnnotationDone: d.done(false)}); err != nil {
		d.store.Log.Warn("a retry would do the step again", "cause", err.Error())
	}
	return nil
}

// done is what AnnotationDone says of this run.
func (d *diskRun) done(hit bool) string {
	if d.call.TaskRunUID == "" {
		return ""
	}
	return fmt.Sprintf("%s %t %s", d.call.TaskRunUID, hit, d.stepKey)
}

// keep notes what the step left, keeps it when the right to do so is this run's, and returns its digest.
func (d *diskRun) keep(ctx context.Context, lock *stepcache.Lock) string {
	digest, err := stepcache.DiskDigest(ctx, d.Disk)
	if err != nil {
		d.store.Log.Warn("the step's result is not kept", "cause", err.Error())
		return ""
	}
	d.note(ctx, digest)
	if lock != nil {
		save(ctx, d.store, lock, stepcache.Result{Step: d.Tool, Claim: d.Claim, Digest: digest})
	}
	return digest
}

// resume ends a run whose earlier try was killed after its step was done.
func (d *diskRun) resume(ctx context.Context, how string) (digest string, hit bool, err error) {
	d.store.Log.Info("an earlier try of this run did the step", "claim", d.Claim)
	by, key, _ := strings.Cut(how, " ")
	hit = by == "true"
	if key == "" || d.options.Mode == Off {
		return "", hit, nil
	}
	var lock *stepcache.Lock
	if !hit {
		_, lock, err = d.store.Take(ctx, stepcache.Query{Key: stepcache.Key(key)})
		if err != nil {
			d.store.Log.Warn("the step cache is not used", "cause", err.Error())
		}
		defer release(ctx, d.store.Log, lock)
	}
	return d.keep(ctx, lock), hit, nil
}

// checkClaim refuses to change an entry of the cache, and returns the claim's annotations. That the
// claim cannot be read is the work's to say.
func (d *diskRun) checkClaim(ctx context.Context) (map[string]string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if d.store.Client.Get(ctx, client.ObjectKey{Namespace: d.call.Namespace, Name: d.Claim}, claim) != nil {
		return nil, nil
	}
	if claim.Labels[stepcache.LabelState] != "" {
		return nil, declare.Coded(declare.CodeUsage, fmt.Errorf("pvc: claim %s is an entry of the step cache, which nothing may change; clone it and name the clone", d.Claim))
	}
	return claim.Annotations, nil
}

// key computes the step's key from the disk and all else as it is now.
func (d *diskRun) key(ctx context.Context) (stepcache.Key, *stepcache.Host, error) {
	base, err := stepcache.DiskDigest(ctx, d.Disk)
	if err != nil {
		return "", nil, err
	}
	return d.keyOn(ctx, base)
}

// keyOn computes the step's key on a disk of that digest.
func (d *diskRun) keyOn(ctx context.Context, base string) (stepcache.Key, *stepcache.Host, error) {
	host, err := Host(ctx, d.store)
	if err != nil {
		return "", nil, err
	}
	inputs, err := stepcache.Inputs(DataFolders()...)
	if err != nil {
		return "", nil, err
	}
	d.base = base
	step := NewStep(d.Tool, d.Options, d.Commands, host, inputs)
	step.Base = base
	d.stepKey, err = step.Key()
	return d.stepKey, host, err
}

// take puts a cached result into the claim and returns its entry; or it returns the right to do
// the work, or neither when there is an entry that cannot be had.
func (d *diskRun) take(ctx context.Context, key stepcache.Key, host *stepcache.Host) (*stepcache.Entry, *stepcache.Lock, error) {
	query := stepcache.Query{Key: key, Since: d.options.Since(d.begun)}
	for {
		entry, lock, err := d.store.Take(ctx, query)
		if entry == nil || err != nil {
			return nil, lock, err
		}
		err = d.put(ctx, host, entry)
		if err == nil {
			return entry, nil, nil
		}
		if errors.Is(err, stepcache.ErrPoisoned) && !errors.Is(err, errHalf) {
			err = d.remove(ctx, entry, err)
		} else if d.arrived(ctx, entry, err) {
			return entry, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// arrived looks whether the entry's disk is in the claim though the pod that put it there was lost:
// the work would be done on it a second time.
func (d *diskRun) arrived(ctx context.Context, entry *stepcache.Entry, cause error) bool {
	if d.Block || ctx.Err() != nil {
		return false
	}
	found, err := stepcache.DiskDigest(ctx, d.Disk)
	if err != nil || found != entry.Digest {
		return false
	}
	d.store.Log.Warn("taken from the step cache, by a pod that was lost afterwards", "entry", entry.Name, "cause", cause.Error())
	return true
}

// remove deletes an entry whose content is not what was cached.
func (d *diskRun) remove(ctx context.Context, entry *stepcache.Entry, cause error) error {
	d.store.Log.Warn("removing an entry of the step cache", "entry", entry.Name, "cause", cause.Error())
	return d.store.Remove(ctx, entry)
}

// note writes onto the claim what its content is; nothing while it changes. Without it clones of
// the claim would be taken for the disk that was imported.
func (d *diskRun) note(ctx context.Context, digest string) {
	if err := d.annotate(ctx, map[string]string{names.AnnotationDigest: digest}); err != nil {
		d.store.Log.Warn("the claim's content is not noted on it", "claim", d.Claim, "cause", err.Error())
	}
}

// annotate sets annotations of the claim, and removes those whose value is empty.
func (d *diskRun) annotate(ctx context.Context, values map[string]string) error {
	annotations := map[string]*string{}
	for name, value := range values {
		annotations[name] = nil
		if value != "" {
			annotations[name] = &value
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("annotating claim %s: %w", d.Claim, err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = d.call.Namespace, d.Claim
	if err := d.store.Client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(stepcache.FieldManager)); err != nil {
		return fmt.Errorf("annotating claim %s: %w", d.Claim, err)
	}
	return nil
}
