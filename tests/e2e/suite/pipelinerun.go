package suite

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StartPipeline makes a run of a pipeline as its run to copy does, with other parameters, and
// with changes to it.
func StartPipeline(ctx context.Context, ns, pipeline string, params map[string]string, changes ...func(*tektonv1.PipelineRun)) *tektonv1.PipelineRun {
	ginkgo.GinkgoHelper()
	run, err := World.PipelineRun(ns, pipeline, params)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, change := range changes {
		change(run)
	}
	Create(ctx, run)
	return run
}

// EndOfPipeline waits until a run has ended, and returns it as it is then.
func EndOfPipeline(ctx context.Context, run *tektonv1.PipelineRun, bound time.Duration) *tektonv1.PipelineRun {
	ginkgo.GinkgoHelper()
	err := World.Await(ctx, ginkgo.GinkgoWriter, run, bound, func(object client.Object) (string, bool, error) {
		run = object.(*tektonv1.PipelineRun)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition == nil {
			return "created", false, nil
		}
		return condition.Reason + ": " + condition.Message, !condition.IsUnknown(), nil
	})
	if err != nil {
		World.Dump(ctx, ginkgo.GinkgoWriter, run.Namespace)
	}
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return run
}
