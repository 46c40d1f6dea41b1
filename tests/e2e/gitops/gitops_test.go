//go:build e2e

// Package gitops tests what Slipway ships for GitOps: tasks that Tekton's resolvers fetch, and the
// health that Argo CD and Flux see.
package gitops

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

func TestGitOps(t *testing.T) {
	suite.Run(t, "gitops", func(ctx context.Context) { catalog = suite.TasksNamespace(ctx) })
}

// catalog is the namespace that has the tasks.
var catalog string

var _ = Describe("a namespace with the tasks' rights and no tasks", func() {
	DescribeTable("runs a task that comes by the resolver", func(ctx context.Context, resolver string, source func(context.Context) (tektonv1.Params, string)) {
		team := suite.Namespace(ctx)
		giveRights(ctx, team)
		params, uri := source(ctx)
		taskRun := runKeys(ctx, team, &tektonv1.TaskRef{ResolverRef: tektonv1.ResolverRef{Resolver: tektonv1.ResolverName(resolver), Params: params}})

		Expect(taskRun.Status.Provenance).NotTo(BeNil())
		Expect(taskRun.Status.Provenance.RefSource).NotTo(BeNil())
		Expect(taskRun.Status.Provenance.RefSource.URI).To(ContainSubstring(uri))
		results := map[string]string{}
		for _, r := range taskRun.Status.Results {
			results[r.Name] = r.Value.StringVal
		}
		var secret corev1.Secret
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: team, Name: results["privateKeySecretName"]}, &secret)).To(Succeed())
		Expect(secret.Type).To(Equal(corev1.SecretTypeSSHAuth))
		Expect(results["publicKey"]).To(HavePrefix("ssh-ed25519 "))
	},
		Entry("cluster", SpecTimeout(20*time.Minute), "cluster", fromCluster),
		Entry("git, a branch", SpecTimeout(20*time.Minute), "git", fromBranch),
		Entry("git, a commit", SpecTimeout(20*time.Minute), "git", fromCommit),
		Entry("bundles", SpecTimeout(25*time.Minute), "bundles", fromBundle),
		Entry("hub", SpecTimeout(20*time.Minute), "hub", fromHub),
	)

	It("says what is wrong with a task that the resolver does not find", func(ctx context.Context) {
		team := suite.Namespace(ctx)
		giveRights(ctx, team)
		run := start(ctx, team, &tektonv1.TaskRef{ResolverRef: tektonv1.ResolverRef{Resolver: "cluster", Params: stringParams("kind", "task", "namespace", catalog, "name", "no-such-task")}})
		condition := ended(ctx, run).Status.GetCondition(apis.ConditionSucceeded)
		Expect(condition.IsFalse()).To(BeTrue())
		Expect(condition.Message).To(ContainSubstring("no-such-task"))
	}, SpecTimeout(15*time.Minute))
})

func stringParams(pairs ...string) tektonv1.Params {
	var params tektonv1.Params
	for n := 0; n < len(pairs); n += 2 {
		params = append(params, tektonv1.Param{Name: pairs[n], Value: *tektonv1.NewStructuredValues(pairs[n+1])})
	}
	return params
}

// start starts a PipelineRun whose only task makes a pair of keys.
func start(ctx context.Context, namespace string, ref *tektonv1.TaskRef) *tektonv1.PipelineRun {
	GinkgoHelper()
	options := tektonv1.ParamValue{Type: tektonv1.ParamTypeArray, ArrayVal: []string{"user:debian", "disable-strict-host-key-checking:true"}}
	run := &tektonv1.PipelineRun{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "keys-", Namespace: namespace},
		Spec: tektonv1.PipelineRunSpec{
			TaskRunTemplate: tektonv1.PipelineTaskRunTemplate{ServiceAccountName: "generate-ssh-keys-task"},
			PipelineSpec: &tektonv1.PipelineSpec{Tasks: []tektonv1.PipelineTask{{
				Name: "keys", TaskRef: ref,
				Params: append(stringParams("additionalSSHKeygenOptions", "-t ed25519"), tektonv1.Param{Name: "privateKeyConnectionOptions", Value: options}),
			}}},
		},
	}
	suite.Create(ctx, run)
	return run
}

// ended waits until a PipelineRun has ended.
func ended(ctx context.Context, run *tektonv1.PipelineRun) *tektonv1.PipelineRun {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, run, suite.BoundTask, func(obj client.Object) (string, bool, error) {
		run = obj.(*tektonv1.PipelineRun)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition == nil {
			return "created", false, nil
		}
		return condition.Reason + ": " + condition.Message, !condition.IsUnknown(), nil
	})
	Expect(err).NotTo(HaveOccurred())
	return run
}

// runKeys runs the task that the reference leads to, which must succeed, and returns its TaskRun.
func runKeys(ctx context.Context, namespace string, ref *tektonv1.TaskRef) *tektonv1.TaskRun {
	GinkgoHelper()
	run := ended(ctx, start(ctx, namespace, ref))
	condition := run.Status.GetCondition(apis.ConditionSucceeded)
	Expect(condition.IsTrue()).To(BeTrue(), condition.Reason+": "+condition.Message)
	Expect(run.Status.ChildReferences).To(HaveLen(1))
	taskRun := &tektonv1.TaskRun{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: run.Status.ChildReferences[0].Name}, taskRun)).To(Succeed())
	return taskRun
}
