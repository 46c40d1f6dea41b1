// Package triggers_test runs the example for Tekton Triggers through Triggers' own library, as its
// event listener does: the interceptors, the binding, the template. It has a module of its own, for what
// Triggers needs is nothing of the project's. Run it by
//
//	go test -C hack/cluster/components/triggers ./...
package triggers_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"github.com/tektoncd/triggers/pkg/apis/triggers/contexts"
	triggersv1 "github.com/tektoncd/triggers/pkg/apis/triggers/v1beta1"
	"github.com/tektoncd/triggers/pkg/interceptors"
	"github.com/tektoncd/triggers/pkg/interceptors/cel"
	"github.com/tektoncd/triggers/pkg/interceptors/github"
	"github.com/tektoncd/triggers/pkg/template"
	"sigs.k8s.io/yaml"
)

const (
	folder = "../../../../pipelines/gitops/examples/triggers/"
	secret = "0123456789abcdef"
)

// example are the objects of the example that Triggers knows, decoded strictly.
type example struct {
	listener triggersv1.EventListener
	binding  triggersv1.TriggerBinding
	template triggersv1.TriggerTemplate
}

func read(t *testing.T) *example {
	t.Helper()
	data, err := os.ReadFile(folder + "triggers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e, found := &example{}, 0
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		into, ok := map[string]any{"EventListener": &e.listener, "TriggerBinding": &e.binding, "TriggerTemplate": &e.template}[head.Kind]
		if !ok {
			continue
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		found++
	}
	if found != 3 {
		t.Fatalf("%d objects of Triggers", found)
	}
	return e
}

func TestTheObjectsAreValid(t *testing.T) {
	e := read(t)
	for name, object := range map[string]interface {
		SetDefaults(ctx context.Context)
	}{"EventListener": &e.listener, "TriggerBinding": &e.binding, "TriggerTemplate": &e.template} {
		object.SetDefaults(contexts.WithUpgradeViaDefaulting(t.Context())) // as the webhook does
		var err error
		switch object := object.(type) {
		case *triggersv1.EventListener:
			err = asError(object.Validate(t.Context()))
		case *triggersv1.TriggerBinding:
			err = asError(object.Validate(t.Context()))
		case *triggersv1.TriggerTemplate:
			err = asError(object.Validate(t.Context()))
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// asError keeps a nil pointer from being an error.
func asError[E interface {
	comparable
	error
}](err E) error {
	var none E
	if err == none {
		return nil
	}
	return err
}

// secrets has the listener's secret.
type secrets struct{}

func (secrets) Get(_ context.Context, _ string, ref *triggersv1.SecretRef) ([]byte, error) {
	if ref.SecretName != "vm-requests" || ref.SecretKey != "token" {
		return nil, os.ErrNotExist
	}
	return []byte(secret), nil
}

// send sends the body through the interceptors, and returns the run that is made of it, or why it is refused.
func send(t *testing.T, body, signature string) (run *tektonv1.PipelineRun, refused string) {
	t.Helper()
	e := read(t)
	header := http.Header{"Content-Type": {"application/json"}, "X-Hub-Signature-256": {signature}}
	trigger := e.listener.Spec.Triggers[0]
	var get interceptors.SecretGetter = secrets{}
	for _, step := range trigger.Interceptors {
		with := map[string]triggersv1.InterceptorInterface{"github": github.NewInterceptor(get), "cel": cel.NewInterceptor(get)}[step.GetName()]
		if with == nil {
			t.Fatalf("interceptor %q is none of Triggers' own", step.GetName())
		}
		params := map[string]any{}
		for _, p := range step.Params {
			var value any
			if err := json.Unmarshal(p.Value.Raw, &value); err != nil {
				t.Fatal(err)
			}
			params[p.Name] = value
		}
		answer := with.Process(t.Context(), &triggersv1.InterceptorRequest{
			Body: body, Header: header, InterceptorParams: params, Context: &triggersv1.TriggerContext{TriggerID: "namespaces/builds/triggers/vm"},
		})
		if !answer.Continue {
			return nil, step.GetName() + ": " + answer.Status.Message
		}
	}
	return render(t, e, trigger, body, header), ""
}

// render makes the run as the listener does.
func render(t *testing.T, e *example, trigger triggersv1.EventListenerTrigger, body string, header http.Header) *tektonv1.PipelineRun {
	t.Helper()
	resolved, err := template.ResolveTrigger(triggersv1.Trigger{Spec: triggersv1.TriggerSpec{Bindings: trigger.Bindings, Template: *trigger.Template}},
		func(name string) (*triggersv1.TriggerBinding, error) {
			if name != e.binding.Name {
				return nil, os.ErrNotExist
			}
			return &e.binding, nil
		}, nil,
		func(name string) (*triggersv1.TriggerTemplate, error) {
			if name != e.template.Name {
				return nil, os.ErrNotExist
			}
			return &e.template, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	params, err := template.ResolveParams(resolved, []byte(body), header, nil, template.NewTriggerContext("0"))
	if err != nil {
		t.Fatal(err)
	}
	made := template.ResolveResources(resolved.TriggerTemplate, params)
	if len(made) != 1 {
		t.Fatalf("made %s", made)
	}
	run := &tektonv1.PipelineRun{}
	if err := yaml.UnmarshalStrict(made[0], run); err != nil {
		t.Fatalf("%v in\n%s", err, made[0])
	}
	run.SetDefaults(t.Context())
	named := run.DeepCopy()
	named.Name = "x" // generateName is for the API server
	if err := asError(named.Validate(t.Context())); err != nil {
		t.Errorf("the run is not valid: %v", err)
	}
	return run
}

func sign(body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func TestASignedRequestMakesARun(t *testing.T) {
	body := `{"name": "web", "template": "vm-from-image", "image": "debian-12", "key": "ssh-ed25519 AAAA \"quoted\" $(params.x)"}`
	run, refused := send(t, body, sign(body))
	if refused != "" {
		t.Fatal(refused)
	}
	if run.GenerateName != "vm-web-" || run.Spec.PipelineRef.Name != "vm-from-template" {
		t.Errorf("run %s of %s", run.GenerateName, run.Spec.PipelineRef.Name)
	}
	var items []string
	for _, p := range run.Spec.Params {
		if p.Name == "templateParams" {
			items = p.Value.ArrayVal
		}
	}
	want := []string{"NAME:web", "IMAGE:debian-12", "DISK_SIZE:5Gi", `SSH_PUBLIC_KEY:ssh-ed25519 AAAA "quoted" $$(params.x)`}
	if strings.Join(items, "\n") != strings.Join(want, "\n") {
		t.Errorf("templateParams %q, want %q", items, want)
	}
}

func TestOtherRequestsAreRefused(t *testing.T) {
	good := `{"name": "web", "image": "x", "key": "y"}`
	bad := `{"name": "web; rm", "image": "x", "key": "y"}`
	for name, c := range map[string]struct{ body, signature, want string }{
		"a wrong signature": {good, sign(bad), "github: "},
		"no signature":      {good, "", "github: "},
		"no name":           {bad, sign(bad), "cel: "},
	} {
		if _, refused := send(t, c.body, c.signature); !strings.HasPrefix(refused, c.want) {
			t.Errorf("%s: %q", name, refused)
		}
	}
}
