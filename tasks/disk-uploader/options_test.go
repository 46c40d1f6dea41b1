package diskuploader

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// reading reads the options from these parameters and the Secret's keys.
func reading(t *testing.T, params, keys map[string]string) (o options, err error) {
	t.Helper()
	folder := t.TempDir()
	for name, value := range keys {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	task := Task()
	task.Rules = nil
	task.Run = func(_ context.Context, call *declare.Call) error {
		o, err = read(call, folder)
		return err
	}
	_ = task.Execute(t.Context(), declare.Environment{
		LookupEnv: func(name string) (string, bool) {
			value, ok := params[strings.TrimPrefix(name, "PARAM_")]
			return value, ok
		},
		Log: slog.New(slog.DiscardHandler),
	})
	return o, err
}

var (
	good = map[string]string{
		paramKind: "vm", paramSource: "golden", paramVolume: "golden-root", paramDestination: "registry.example.com/a:b", paramSecret: "login",
	}
	login = map[string]string{"accessKeyId": "me\n", "secretKey": "secret"}
)

func TestOptions(t *testing.T) {
	o, err := reading(t, good, login)
	if err != nil || o.kind != kindVM || o.source != "golden" || o.volume != "golden-root" || o.timeout != 2*time.Hour || o.destination.String() != "registry.example.com/a:b" {
		t.Errorf("%+v, %v", o, err)
	}
	for name, c := range map[string]struct {
		params, keys map[string]string
		want         string
	}{
		"no kind":                     {map[string]string{paramKind: " "}, login, "export-source-kind param has to be specified"},
		"no source":                   {map[string]string{paramSource: ""}, login, "export-source-name param has to be specified"},
		"no volume":                   {map[string]string{paramVolume: ""}, login, "volume-name param has to be specified"},
		"no destination":              {map[string]string{paramDestination: ""}, login, "image-destination param has to be specified"},
		"an unknown kind":             {map[string]string{paramKind: "disk"}, login, `"disk" is neither vm nor pvc`},
		"a snapshot":                  {map[string]string{paramKind: "vmsnapshot"}, login, "upload that as kind pvc"},
		"a claim and another volume":  {map[string]string{paramKind: "pvc"}, login, "give its name in both"},
		"a time that is none":         {map[string]string{paramTimeout: "2h"}, login, "PUSH_TIMEOUT: \"2h\" is no number of minutes"},
		"no time":                     {map[string]string{paramTimeout: "0"}, login, "PUSH_TIMEOUT"},
		"a destination that is none":  {map[string]string{paramDestination: "A B"}, login, "IMAGE_DESTINATION: "},
		"a switch that is none":       {map[string]string{paramPlain: "yes"}, login, "PLAIN_HTTP: "},
		"a Secret that is missing":    {nil, nil, "Secret login does not exist or has no key"},
		"a Secret without a password": {nil, map[string]string{"accessKeyId": "me"}, "has no key secretKey"},
	} {
		t.Run(name, func(t *testing.T) {
			params := maps.Clone(good)
			maps.Copy(params, c.params)
			if _, err := reading(t, params, c.keys); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestWrongParametersEndWithTheFieldsCode(t *testing.T) {
	task := Task()
	task.Rules = nil
	err := task.Execute(t.Context(), declare.Environment{
		LookupEnv: func(string) (string, bool) { return "", true }, Log: slog.New(slog.DiscardHandler),
	})
	var exit *declare.Exit
	if !errors.As(err, &exit) || exit.Code != 2 {
		t.Errorf("ended with %v", err)
	}
}

func TestClaimsOfAVM(t *testing.T) {
	vm := &virtv1.VirtualMachine{}
	if claims := claimsOf(vm); len(claims) != 0 {
		t.Errorf("a VM without a template has claims %v", claims)
	}
	if err := yaml.UnmarshalStrict([]byte(`
spec:
  template:
    spec:
      domain: {devices: {}}
      volumes:
      - {name: a, dataVolume: {name: root}}
      - {name: b, containerDisk: {image: x}}
      - {name: c, persistentVolumeClaim: {claimName: data}}
`), vm); err != nil {
		t.Fatal(err)
	}
	if claims := strings.Join(claimsOf(vm), " "); claims != "root data" {
		t.Errorf("claims %s", claims)
	}
}
