// Package start begins the PipelineRun that a Job is there for, and waits for its end.
package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/await"
)

// Order is what a Job has to start.
type Order struct {
	// File holds the PipelineRun as YAML; it has a generateName.
	File string
	// Namespace is the Job's, and where the run is made.
	Namespace string
	// Job and JobUID name the Job, which owns the run: the run goes when the CronJob's history drops the Job.
	Job    string
	JobUID types.UID
	// Keep is how many volumes of the golden image that the run's earlier ones made stay, the newest
	// ones; 0 for all. See LabelRefresh.
	Keep int
}

// Read reads the order's run and completes it. Its name is made of the Job's uid, so that another
// pod of the same Job takes up the same run.
func (o Order) Read() (*tektonv1.PipelineRun, error) {
	for name, value := range map[string]string{"NAMESPACE": o.Namespace, "JOB_NAME": o.Job, "JOB_UID": string(o.JobUID)} {
		if value == "" {
			return nil, fmt.Errorf("%s is empty: set it from the pod's metadata, as golden-image-refresh does", name)
		}
	}
	data, err := os.ReadFile(o.File)
	if err != nil {
		return nil, fmt.Errorf("reading the PipelineRun to start: %w", err)
	}
	run := &tektonv1.PipelineRun{}
	if err := yaml.UnmarshalStrict(data, run); err != nil {
		return nil, fmt.Errorf("reading the PipelineRun in %s: %w", o.File, err)
	}
	switch {
	case run.Kind != "PipelineRun" || run.APIVersion != tektonv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("%s: it is a %s of %s; write a PipelineRun of %s", o.File, run.Kind, run.APIVersion, tektonv1.SchemeGroupVersion)
	case run.GenerateName == "" || run.Name != "":
		return nil, fmt.Errorf("%s: metadata: give generateName and no name; each Job makes a run of its own", o.File)
	case run.Namespace != "" && run.Namespace != o.Namespace:
		return nil, fmt.Errorf("%s: metadata.namespace is %s; the run is made in the Job's namespace %s, leave it out", o.File, run.Namespace, o.Namespace)
	case o.Keep < 0:
		return nil, fmt.Errorf("--keep: %d is no number of volumes; write 0 to keep all", o.Keep)
	case o.Keep > 0 && image(run) == "":
		return nil, fmt.Errorf("%s: spec.params: %s is missing, by which --keep knows the image's older volumes; give it, or --keep=0", o.File, paramImage)
	}
	run.Name, run.GenerateName, run.Namespace = run.GenerateName+short(o.JobUID), "", o.Namespace
	run.OwnerReferences = []metav1.OwnerReference{o.owner()}
	return run, nil
}

// short is as much of a uid as tells runs of one name apart.
func short(uid types.UID) string { return string(uid)[:min(8, len(uid))] }

func (o Order) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: o.Job, UID: o.JobUID}
}

// Do makes the run, unless an earlier pod of the Job has, and waits for its end. A run that failed is
// an error. After one that succeeded, volumes of earlier nights are deleted as Keep says.
func (o Order) Do(ctx context.Context, c client.WithWatch, log *slog.Logger) error {
	run, err := o.Read()
	if err != nil {
		return err
	}
	key, refresh := client.ObjectKeyFromObject(run), strings.TrimSuffix(run.Name, "-"+short(o.JobUID))
	err = c.Create(ctx, run)
	switch {
	case apierrors.IsAlreadyExists(err):
		if err := o.checkOwner(ctx, c, key); err != nil {
			return err
		}
		log.Info("An earlier pod of the Job started the run", "pipelineRun", key.Name)
	case err != nil:
		return fmt.Errorf("starting the PipelineRun %s: %w", key, err)
	default:
		log.Info("Started", "pipelineRun", key.Name)
	}
	run, err = wait(ctx, c, key, log)
	if err != nil || o.Keep == 0 {
		return err
	}
	r := &retention{client: c, log: log, run: run, refresh: strings.TrimRight(refresh, "-."), keep: o.Keep}
	return r.retain(ctx)
}

// checkOwner makes sure that the run that exists is this Job's.
func (o Order) checkOwner(ctx context.Context, c client.Client, key client.ObjectKey) error {
	run := &tektonv1.PipelineRun{}
	if err := c.Get(ctx, key, run); err != nil {
		return fmt.Errorf("reading the PipelineRun %s: %w", key, err)
	}
	for _, owner := range run.OwnerReferences {
		if owner.UID == o.JobUID {
			return nil
		}
	}
	return fmt.Errorf("PipelineRun %s exists and is not of Job %s; delete it or give another generateName", key, o.Job)
}

// wait returns the run once it has succeeded.
func wait(ctx context.Context, c client.WithWatch, key client.ObjectKey, log *slog.Logger) (ended *tektonv1.PipelineRun, err error) {
	seen := ""
	err = await.Object(ctx, c, &tektonv1.PipelineRunList{}, key, func(run *tektonv1.PipelineRun, exists bool) (bool, error) {
		if !exists {
			return false, errors.New("it was deleted before its end")
		}
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition == nil {
			return false, nil
		}
		if condition.Message != seen {
			seen = condition.Message
			log.Info(condition.Message, "pipelineRun", run.Name, "reason", condition.Reason)
		}
		if condition.IsFalse() {
			return false, fmt.Errorf("PipelineRun %s failed: %s: %s", run.Name, condition.Reason, condition.Message)
		}
		ended = run
		return condition.IsTrue(), nil
	})
	return ended, err
}
