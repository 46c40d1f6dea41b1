// Package rehearsal runs tasks in tests as Tekton would run them: with the environment and the
// arguments of the generated step, as the task's ServiceAccount with its generated Role, against a
// real API server. It can end a task at any of its calls, as if its pod were killed there, and it
// holds a task to its rules: no call may be forbidden, and no rule may be without a call.
package rehearsal

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// boundReady is how long the API server may take to know a new Role, or the test to see what it waits for, on a busy machine.
const boundReady = 3 * time.Minute

// Stage is an API server with the definitions that Slipway installs, and nothing beside it.
type Stage struct {
	// Client has all rights. It is the test's, which plays the cluster around a task.
	Client client.WithWatch
	config *rest.Config

	mu    sync.Mutex
	calls map[string]*calls
}

// Open starts a stage; crds are the folder of the definitions, from where the test runs.
// At the end of the test every rule of the tasks that ran must have been used.
func Open(t *testing.T, crds string) *Stage {
	t.Helper()
	config := apiserver.Start(t, crds)
	config.QPS, config.Burst = 500, 500
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{taskRuns()}}); err != nil {
		t.Fatal(err)
	}
	s := &Stage{Client: apiserver.Player(t, config), config: config, calls: map[string]*calls{}}
	t.Cleanup(func() { s.checkRules(t) })
	return s
}

// taskRuns is the definition of Tekton's TaskRun, without its schema.
func taskRuns() *apiextensionsv1.CustomResourceDefinition {
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "taskruns.tekton.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "tekton.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "taskruns", Singular: "taskrun", Kind: "TaskRun", ListKind: "TaskRunList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
			}},
		},
	}
}

// Unused excuses a rule's verb, such as "delete secrets", that no run of the task in this test uses.
func (s *Stage) Unused(t *testing.T, task *declare.Task, call, reason string) {
	t.Helper()
	t.Logf("task %s: %s is not used here: %s", task.Name, call, reason)
	s.of(task).add(call)
}

func (s *Stage) of(task *declare.Task) *calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[task.Name] == nil {
		s.calls[task.Name] = &calls{task: task, made: map[string]bool{}}
	}
	return s.calls[task.Name]
}

func (s *Stage) checkRules(t *testing.T) {
	t.Helper()
	if f := flag.Lookup("test.run"); t.Failed() || f != nil && strings.Contains(f.Value.String(), "/") {
		return // a part of the test, or one that failed, did not come to use all
	}
	for _, c := range s.calls {
		if unused := c.unused(); len(unused) > 0 {
			t.Errorf("task %s has rules that no call used: %s; remove them, or run what needs them", c.task.Name, strings.Join(unused, ", "))
		}
	}
}

// Namespace makes a namespace in which the tasks have their ServiceAccounts and Roles.
func (s *Stage) Namespace(t *testing.T, tasks ...*declare.Task) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rehearsal-"}}
	if err := s.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		for _, made := range task.Manifests()[1:] {
			object, ok := made.(client.Object)
			if !ok {
				t.Fatalf("task %s: %T is no object", task.Name, made)
			}
			object.SetNamespace(ns.Name)
			if binding, ok := object.(*rbacv1.RoleBinding); ok {
				binding.Subjects[0].Namespace = ns.Name
			}
			if err := s.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		s.ready(t, task, ns.Name)
	}
	return ns.Name
}

// ready waits until the API server knows the task's Role.
func (s *Stage) ready(t *testing.T, task *declare.Task, namespace string) {
	t.Helper()
	if len(task.Rules) == 0 {
		return
	}
	last := task.Rules[len(task.Rules)-1]
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, boundReady, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user(task, namespace),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: last.Verbs[0], Group: last.APIGroups[0], Resource: last.Resources[0],
			},
		}}
		err := s.Client.Create(ctx, review)
		if err != nil {
			return false, fmt.Errorf("asking for the rights of %s: %w", review.Spec.User, err)
		}
		return review.Status.Allowed, nil
	})
	if err != nil {
		t.Fatalf("waiting until the API server knows the Role of task %s: %v", task.Name, err)
	}
}

// Tells says whether the API server tells clients that it serves the version. It does so for a moment after it serves it no more.
func (s *Stage) Tells(t *testing.T, version schema.GroupVersion) bool {
	t.Helper()
	asked, err := discovery.NewDiscoveryClientForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := asked.ServerGroups()
	if err != nil {
		t.Fatalf("asking what is served: %v", err)
	}
	listed := metav1.ExtractGroupVersions(groups)
	if slices.Contains(listed, version.String()) {
		return true
	}
	_, err = asked.ServerResourcesForGroupVersion(version.String())
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("asking whether %s is served: %v", version, err)
	}
	return err == nil
}

func user(task *declare.Task, namespace string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s-task", namespace, task.Name)
}

// Eventually waits until object, which Get fills, is as done says.
func (s *Stage) Eventually(t *testing.T, what string, object client.Object, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, boundReady, true, func(ctx context.Context) (bool, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return done(), nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// unused lists the verbs of the task's rules that no call used. A watch counts as a list too: where
// the API server cannot stream a list, which older ones cannot, the client lists first.
func (c *calls) unused() []string {
	var unused []string
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rule := range c.task.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				call := verb + " " + resource
				used := c.made[call] || verb == "list" && c.made["watch "+resource]
				if !used && !slices.Contains(unused, call) {
					unused = append(unused, call)
				}
			}
		}
	}
	return unused
}
