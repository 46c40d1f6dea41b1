// Package cached puts the step cache (internal/stepcache) around the work of a task: it looks the
// step's result up, does the work when it is not there, and keeps what the work left.
//
// The cache never fails a task. Where it cannot be used the work is done as without it, and the
// log says why.
package cached

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Mode says how a task uses the cache.
type Mode string

// Modes.
const (
	Auto    Mode = "auto"    // take a result that is there, keep one that was not
	Off     Mode = "off"     // neither take nor keep
	Refresh Mode = "refresh" // do the work, and keep its result in place of the one that is there
)

// Names of the parameters and results.
const (
	ParamMode    = "cache"
	ParamTTL     = "cacheTTL"
	ResultCached = "cached"
	ResultDigest = "digest"
)

// saveBound is how long a result may take to be kept: where storage clones, it is seconds. Storage
// that says that it cannot is not waited for; one that says nothing, as long as this.
const saveBound = 3 * time.Minute

// Params are the parameters of a task that uses the cache.
func Params() []declare.Param {
	return []declare.Param{
		{Name: ParamMode, Default: string(Auto), Description: "What to do with the step cache: `auto` takes the result of an earlier run of the same step and keeps a new one, `off` does neither, `refresh` does the step and keeps its result anew."},
		{Name: ParamTTL, Kind: "duration", Description: "How old a cached result may be, such as `168h`; empty for any age. For commands that fetch what changes, such as updates."},
	}
}

// Results are the results of a task that uses the cache.
func Results() []declare.Result {
	return []declare.Result{
		{Name: ResultDigest, Description: "Digest of the disk's content; empty with `cache: off`, or where it could not be computed."},
		{Name: ResultCached, Description: "`true` when the disk is the result of an earlier run, otherwise `false`."},
	}
}

// DiskRule are the further API verbs of a task that uses Disk.
func DiskRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "patch"}}
}

// None writes the results of a task that does what is not cached.
func None(call *declare.Call) error {
	return errors.Join(call.Result(ResultDigest, ""), call.Result(ResultCached, "false"))
}

// Rules are the API verbs of a task that uses Disk or Import; they need get of persistentvolumeclaims besides.
func Rules() []rbacv1.PolicyRule {
	return append(RestoreRules(), rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"watch"},
	})
}

// RestoreRules are the API verbs of a task that takes entries and makes none.
func RestoreRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{stepcache.ConfigName}, Verbs: []string{"get"}},
	}
}

// Options are the values of Params.
type Options struct {
	Mode Mode
	TTL  time.Duration
}

// Read reads the parameters of a call.
func Read(call *declare.Call) (Options, error) {
	o := Options{Mode: Mode(call.String(ParamMode))}
	ttl, err := call.Duration(ParamTTL)
	o.TTL = ttl
	switch o.Mode {
	case Auto, Off, Refresh:
	case "":
		o.Mode = Auto
	default:
		err = errors.Join(err, declare.Coded(declare.CodeUsage, fmt.Errorf("%s: %q is not known; write auto, off or refresh", ParamMode, o.Mode)))
	}
	return o, err
}

// Since is when a result that is taken was made at the earliest, for a run that begins now.
func (o Options) Since(now time.Time) time.Time {
	switch {
	case o.Mode == Refresh:
		return now.Truncate(time.Second).Add(time.Second) // what is there already was made before
	case o.TTL > 0:
		return now.Add(-o.TTL)
	}
	return time.Time{}
}

// Store is the cache as the call's run sees it.
func Store(call *declare.Call) *stepcache.Store {
	run := stepcache.Run{Namespace: call.Namespace, Name: call.TaskRun.Name, UID: call.TaskRunUID}
	if call.TaskRunUID != "" {
		run.Owner = &metav1.OwnerReference{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: call.TaskRun.Name, UID: call.TaskRunUID}
	}
	return &stepcache.Store{Client: call.Client, Run: run, Log: call.Log}
}

// Host finds the run's own pod, which has this program as its one step.
func Host(ctx context.Context, store *stepcache.Store) (*stepcache.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding this pod's name: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return store.FindHost(ctx, name, program)
}

// release gives the right to the work back; that it fails is no reason to fail the work.
func release(ctx context.Context, log *slog.Logger, lock *stepcache.Lock) {
	if err := lock.Release(ctx); err != nil {
		log.Warn("the step cache", "cause", err.Error())
	}
}

// save keeps a result; that it fails is no reason to fail the work.
func save(ctx context.Context, store *stepcache.Store, lock *stepcache.Lock, result stepcache.Result) {
	ctx, stop := context.WithTimeoutCause(ctx, saveBound, errors.New("it took too long; storage that clones claims does it in seconds"))
	defer stop()
	if _, err := store.Save(ctx, lock, result); err != nil {
		store.Log.Warn("the step's result is not kept", "cause", err.Error())
	}
}
