package pod

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// The VMI's own label comes before what is said of all launchers; without either nothing is told.
func TestLaunchersAreToldHowMuchToLog(t *testing.T) {
	for name, c := range map[string]struct {
		label string
		all   uint
		want  string
	}{
		"nothing is said": {"", 0, ""}, "of all": {"", 5, "5"}, "of this one": {"7", 5, "7"}, "of this one alone": {"0", 0, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{}
			if c.label != "" {
				vmi.Labels = map[string]string{names.LogVerbosityLabel: c.label}
			}
			got := ""
			for _, variable := range launcherEnv(Input{VMI: vmi, LogVerbosity: c.all}) {
				got += variable.Name + "=" + variable.Value
			}
			if c.want != "" {
				c.want = names.EnvLauncherVerbosity + "=" + c.want
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
