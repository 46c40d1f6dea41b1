package declare

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func sample(run func(context.Context, *Call) error) *Task {
	return &Task{
		Name: "sample", Title: "Sample", Summary: "Shows every part of a task.", Details: "More words.", Image: Guestfs, Disk: "pvc", Data: 2,
		Params: []Param{
			{Name: "pvc", Description: "Claim.", Required: true},
			{Name: "SECRET_NAME", Description: "Secret | other.", Default: "none"},
			{Name: "words", Description: "Words.", Array: true, Earlier: []string{"oldWords"}},
			{Name: "mode", Description: "Mode.", Default: "fast", Kind: "mode", Earlier: []string{"oldMode", "olderMode"}},
			{Name: "target", Description: "Target.", Required: true, Object: Claim, Earlier: []string{"oldTarget"}},
			{Name: "more", Description: "More words.", Array: true},
			{Name: "wait", Description: "Wait.", Default: "false", Kind: "boolean"},
		},
		Results:  []Result{{Name: "name", Description: "Name."}},
		Secret:   &SecretMount{Param: "SECRET_NAME", Path: "/data/secret"},
		Rules:    []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}},
		Examples: []Example{{Title: "Use it", Params: map[string]any{"pvc": "disk", "words": []string{"a"}}}},
		Run:      run,
	}
}

func TestManifestAndREADME(t *testing.T) {
	task := sample(nil)
	manifest, err := task.YAML()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := task.README()
	if err != nil {
		t.Fatal(err)
	}
	hub, err := task.hub()
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"sample.yaml": string(manifest), "sample.md": readme, "sample-pkg.yml": string(hub)} {
		fixture.Golden(t, filepath.Join("testdata", name), got)
	}
}

func environment(vars map[string]string, args ...string) Environment {
	return Environment{
		Args: args, Out: &bytes.Buffer{}, Log: slog.New(slog.DiscardHandler),
		LookupEnv: func(name string) (string, bool) { value, ok := vars[name]; return value, ok },
		Connect:   func() (client.WithWatch, error) { return nil, nil },
	}
}

func TestExecuteReadsParameters(t *testing.T) {
	dir := t.TempDir()
	task := sample(func(_ context.Context, call *Call) error {
		if call.String("pvc") != "disk" || call.String("SECRET_NAME") != "none" || call.Namespace != "ns" {
			t.Errorf("strings are %v", call.strings)
		}
		if !slices.Equal(call.Array("words"), []string{"a b", "--flag", ""}) || !slices.Equal(call.Array("more"), []string{`params."words"`, `params."words"@u2`}) {
			t.Errorf("arrays are %q", call.arrays)
		}
		if owner, err := call.Owner(); err != nil || owner.Name != "run" || owner.Kind != "TaskRun" {
			t.Errorf("owner %v, %v", owner, err)
		}
		if err := call.Result("other", "x"); err == nil {
			t.Error("an undeclared result was written")
		}
		return call.Result("name", "made")
	})
	vars := map[string]string{"PARAM_PVC": "disk", "PARAM_TARGET": "t", "TASK_NAMESPACE": "ns", "TASK_RUN_NAME": "run", "TASK_RUN_UID": "u1", "TASK_RESULTS_DIR": dir}
	err := task.Execute(t.Context(), environment(vars, `params."words"@u1`, "a b", "--flag", "", `params."more"@u1`, `params."words"`, `params."words"@u2`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "name")); err != nil || string(got) != "made" {
		t.Fatalf("the result is %q, %v", got, err)
	}
}

func TestExecuteRefuses(t *testing.T) {
	cases := map[string]struct {
		vars map[string]string
		args []string
		want string
	}{
		"a missing parameter":               {nil, nil, "parameter pvc is required"},
		"an argument of no array":           {map[string]string{"PARAM_TARGET": "t", "PARAM_PVC": "x"}, []string{"stray"}, `unexpected argument "stray"`},
		"a boolean that is none":            {map[string]string{"PARAM_TARGET": "t", "PARAM_PVC": "x", "PARAM_WAIT": "yes"}, nil, `wait: "yes" is neither "true" nor "false"`},
		"a boolean of another spelling":     {map[string]string{"PARAM_TARGET": "t", "PARAM_PVC": "x", "PARAM_WAIT": "True"}, nil, "neither"},
		"neither name of a required one":    {map[string]string{"PARAM_TARGET": "", "PARAM_OLD_TARGET": "", "PARAM_PVC": "x"}, nil, "parameter target is required"},
		"two names with different values":   {map[string]string{"PARAM_TARGET": "t", "PARAM_PVC": "x", "PARAM_MODE": "slow", "PARAM_OLD_MODE": "slower"}, nil, "parameters mode and oldMode mean the same and differ"},
		"two names with different words":    {map[string]string{"PARAM_TARGET": "t", "PARAM_PVC": "x"}, []string{`params."words"@`, "a", `params."oldWords"@`, "b"}, "parameters words and oldWords mean the same and differ"},
		"two earlier names that contradict": {map[string]string{"PARAM_TARGET": "t", "PARAM_PVC": "x", "PARAM_OLD_MODE": "a", "PARAM_OLDER_MODE": "b"}, nil, "mean the same and differ"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			task := sample(func(_ context.Context, call *Call) error { _, err := call.Bool("wait"); return err })
			err := task.Execute(t.Context(), environment(c.vars, c.args...))
			var exit *Exit
			if !errors.As(err, &exit) || exit.ExitCode() != CodeUsage || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want code %d and %q", err, CodeUsage, c.want)
			}
		})
	}
}

func TestEarlierNamesAreRead(t *testing.T) {
	task := sample(func(_ context.Context, call *Call) error {
		if call.String("mode") != "slow" || call.String("target") != "t" || !slices.Equal(call.Array("words"), []string{"a", "b c"}) {
			t.Errorf("got %v %v", call.strings, call.arrays)
		}
		return nil
	})
	vars := map[string]string{"PARAM_PVC": "x", "PARAM_MODE": "fast", "PARAM_OLDER_MODE": "slow", "PARAM_TARGET": "", "PARAM_OLD_TARGET": "t", "TASK_RUN_UID": "u"}
	if err := task.Execute(t.Context(), environment(vars, `params."words"@u`, `params."oldWords"@u`, "a", "b c")); err != nil {
		t.Fatal(err)
	}
}

func TestATaskWithoutTheAPI(t *testing.T) {
	ran := false
	task := sample(func(_ context.Context, call *Call) error { ran = call.Client == nil; return nil })
	env := environment(map[string]string{"PARAM_PVC": "x", "PARAM_TARGET": "t"})
	env.Connect = func() (client.WithWatch, error) { return nil, errors.New("no token") }
	var exit *Exit
	task.ClientCode = 252
	if err := task.Execute(t.Context(), env); !errors.As(err, &exit) || exit.Code != 252 || ran {
		t.Errorf("a task that needs the API ended with %v", err)
	}
	task.ClientOptional = true
	if err := task.Execute(t.Context(), env); err != nil || !ran {
		t.Errorf("a task that does not need the API ended with %v", err)
	}
}

func TestOwnerIsOfTheSameNamespace(t *testing.T) {
	call := &Call{Namespace: "ns", TaskRunUID: "u"}
	if _, err := call.OwnerIn("ns"); err != nil {
		t.Error(err)
	}
	if _, err := call.OwnerIn("other"); err == nil || !strings.Contains(err.Error(), "cannot own an object in namespace other") {
		t.Errorf("an owner in another namespace: %v", err)
	}
}

func TestNamespaceOr(t *testing.T) {
	call := &Call{Namespace: "run", strings: map[string]string{"given": "  openshift ", "blank": "  "}}
	for _, c := range []struct {
		param, other, want string
	}{{"given", "manifest", "openshift"}, {"blank", "manifest", "manifest"}, {"blank", "", "run"}, {"none", "", "run"}} {
		if got := call.NamespaceOr(c.param, c.other); got != c.want {
			t.Errorf("%s beside %q is %q, want %q", c.param, c.other, got, c.want)
		}
	}
	if got := call.Name("given"); got != "openshift" {
		t.Errorf("the name is %q", got)
	}
}

func TestEnv(t *testing.T) {
	for name, want := range map[string]string{
		"vmName": "PARAM_VM_NAME", "SECRET_NAME": "PARAM_SECRET_NAME", "pvc": "PARAM_PVC",
		"additionalSSHKeygenOptions": "PARAM_ADDITIONAL_SSHKEYGEN_OPTIONS", "startVM": "PARAM_START_VM",
	} {
		if got := (Param{Name: name}).Env(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestCodedKeepsTheFirstCode(t *testing.T) {
	if Coded(2, nil) != nil {
		t.Error("no error became one")
	}
	cause := errors.New("cause")
	if err := Coded(4, cause); !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	var exit *Exit
	if err := Coded(4, Coded(3, cause)); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the code is %d, want the first, 3", exit.ExitCode())
	}
}
