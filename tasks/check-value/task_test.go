package checkvalue

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tasks/declare"
)

func TestOnlyWhatIsAllowedPasses(t *testing.T) {
	consent := []string{`params."allowed"@`, "true"}
	for _, c := range []struct {
		name    string
		value   string
		allowed []string
		code    int
		message string
	}{
		{"consent", "true", consent, 0, ""},
		{"refusal", "false", consent, 1, `acceptEula is "false"; it must be "true": read the license`},
		{"nothing", "", consent, 1, `acceptEula is ""; it must be "true"`},
		{"another spelling", "True", consent, 1, `acceptEula is "True"`},
		{"white space", " true", consent, 1, `acceptEula is " true"`},
		{"a word of it", "true false", consent, 1, `acceptEula is "true false"`},
		{"one of two", "off", []string{`params."allowed"@`, "on", "off"}, 0, ""},
		{"none of two", "on off", []string{`params."allowed"@`, "on", "off"}, 1, `must be "on" or "off"`},
		{"no value could pass", "true", []string{`params."allowed"@`}, declare.CodeUsage, "allowed: it has no item"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{param("name"): "acceptEula", param("value"): c.value, param("hint"): "read the license"}
			var log bytes.Buffer
			err := Task().Execute(t.Context(), declare.Environment{
				Args: c.allowed, Out: &log, Log: slog.New(slog.NewTextHandler(&log, nil)),
				LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
			})
			if c.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var exit *declare.Exit
			if !errors.As(err, &exit) || exit.Code != c.code || !strings.Contains(err.Error(), c.message) {
				t.Errorf("error %v, want code %d and %q", err, c.code, c.message)
			}
		})
	}
}

// param is the environment variable of a parameter.
func param(name string) string { return declare.Param{Name: name}.Env() }
