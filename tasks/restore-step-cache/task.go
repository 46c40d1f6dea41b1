// Package restorestepcache looks the steps of a pipeline up in the step cache and restores the
// last disk that is there.
package restorestepcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Results of the task.
const (
	resultVolume   = "volume"
	resultUpToDate = "upToDate"
	resultImport   = "importCached"
	resultSteps    = "cachedSteps"
	resultRecipe   = "recipe"
	resultSource   = "dataSource"
)

// codeRestore is the exit code when a disk could not be restored.
const codeRestore = 2

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "restore-step-cache",
		Title:   "Restore from the step cache",
		Summary: "Looks the steps of a pipeline up in the step cache, restores the disk of the last one that is there, and says which steps are still to do.",
		Details: `
It is the first task of a pipeline that makes a disk: by an import, then steps that change the disk, then a DataSource
that publishes it. Later tasks ask its results in ` + "`when`" + `: the import runs unless importCached is "true", step n runs
when cachedSteps is less than n, and nothing at all runs when upToDate is "true".

upToDate means that the DataSource was published by a run of the same recipe: the same source, steps, tool, files and
values of recipe and template. For that the task that publishes annotates it with
` + "`slipway-vm.github.io/step-cache-recipe: $(tasks.NAME.results.recipe)@$(tasks.NAME.results.volume)`" + `.

The step's tool is told by the digest of the image that this task runs in, which is that of the disk tasks. Files in
the optional workspaces data01 to data10 count as inputs of every step; bind those that the steps have.

A restored disk is a clone of the cache's entry. A pod reads the entry meanwhile; when its content is not the one that
was cached, the entry is removed and the task goes on with the step before it. Where the cache cannot be used, nothing
is cached, and the log says why. Exit codes: 2 a disk could not be restored, 255 a parameter is wrong.`,
		Image:  declare.Guestfs,
		Memory: "48Mi", // it is in that image for its digest only
		Params: append([]declare.Param{
			{Name: "manifest", Required: true, Kind: "yaml", Description: "YAML of the DataVolume that the import makes; its name may be generated (generateName). A restored disk has its name, labels and annotations."},
			{Name: "steps", Array: true, Description: "The steps that change the disk, in their order. The first line of each is the task, such as disk-virt-customize, with its additionalVirtOptions; the further lines are its virtCommands."},
			{Name: "dataSource", Kind: "name", Description: "DataSource that the pipeline publishes; empty for none."},
			{Name: "recipe", Array: true, Description: "What else decides whether the DataSource is up to date, such as the script that checks the image."},
			{Name: "template", Kind: "name", Description: "Template whose content does so, too; empty for none."},
			{Name: "setOwnerReference", Description: "Make the TaskRun own a restored disk, so that the disk goes with the run, until a DataSource publishes it.", Default: "false", Kind: "boolean"},
			{Name: "timeout", Default: "30m", Kind: "duration", Description: "The longest time that a restored disk may take."},
		}, cached.Params()...),
		Results: append([]declare.Result{
			{Name: resultVolume, Description: "The DataVolume and claim: restored, or to be made by the import; with upToDate the one that is published."},
			{Name: resultUpToDate, Description: "`true` when the DataSource is what the pipeline would publish, otherwise `false`."},
			{Name: resultImport, Description: "`true` when the volume is there, so that nothing is to import."},
			{Name: resultSteps, Description: "How many steps, from the first on, the volume has had already: `0`, `1`, …"},
			{Name: resultRecipe, Description: "Key of all that decides what the pipeline publishes; empty when something of it is not known."},
			{Name: resultSource, Description: "The parameter dataSource."},
		}, cached.Results()...),
		Rules: append(cached.RestoreRules(),
			rbacv1.PolicyRule{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datasources"}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{"template.openshift.io"}, Resources: []string{"templates"}, Verbs: []string{"get"}},
		),
		Data: 10,
		Examples: []declare.Example{{
			Title: "Look an import and one step up",
			Params: map[string]any{
				"dataSource": "debian-12",
				"steps":      []string{"disk-virt-customize\ntimezone Europe/Vienna"},
				"manifest": `apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata:
  generateName: debian-12-
  annotations:
    cdi.kubevirt.io/storage.bind.immediate.requested: "true"
spec:
  source:
    http:
      url: https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2
  storage:
    resources:
      requests:
        storage: 5Gi
`,
			},
		}},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	c, err := readChain(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	timeout, err := call.Duration("timeout")
	if err != nil {
		return err
	}
	if timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, timeout, errors.New("timed out waiting for the restored disk"))
		defer stop()
	}
	f, err := c.look(ctx, time.Now())
	if err != nil {
		return declare.Coded(codeRestore, err)
	}
	call.Log.Info("looked into the step cache", resultUpToDate, f.upToDate, resultImport, f.imported, resultSteps, f.steps, resultVolume, f.volume)
	return errors.Join(
		call.Result(resultVolume, f.volume),
		call.Result(resultUpToDate, fmt.Sprint(f.upToDate)),
		call.Result(resultImport, fmt.Sprint(f.imported)),
		call.Result(resultSteps, fmt.Sprint(f.steps)),
		call.Result(resultRecipe, string(f.recipe)),
		call.Result(resultSource, call.String("dataSource")),
		call.Result(cached.ResultDigest, f.digest),
		call.Result(cached.ResultCached, fmt.Sprint(f.imported)),
	)
}
