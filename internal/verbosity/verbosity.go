// Package verbosity lets the KubeVirt object say how much the components log while they run:
// spec.configuration.developerConfiguration.logVerbosity.
package verbosity

import (
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2/textlogger"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/internal/follow"
)

// Max is the largest level: everything is logged.
const Max = 9

// Component reads the level that logVerbosity has for a component; 0 is none.
type Component func(*virtv1.LogVerbosity) uint

// Components with a level of their own.
var (
	API        Component = func(v *virtv1.LogVerbosity) uint { return v.VirtAPI }
	Controller Component = func(v *virtv1.LogVerbosity) uint { return v.VirtController }
	Operator   Component = func(v *virtv1.LogVerbosity) uint { return v.VirtOperator }
)

// Handler is virt-handler on node, for which a node's own level comes first.
func Handler(node string) Component {
	return func(v *virtv1.LogVerbosity) uint {
		if own := v.NodeVerbosity[node]; own > 0 {
			return own
		}
		return v.VirtHandler
	}
}

// Level is how much a program logs, to standard error.
type Level struct {
	config *textlogger.Config
	base   int
}

// New returns a level that is base while the KubeVirt object names none.
func New(base int) *Level {
	return &Level{config: textlogger.NewConfig(textlogger.Verbosity(base), textlogger.Output(os.Stderr)), base: base}
}

// Logger logs at the level, also when that changes later.
func (l *Level) Logger() logr.Logger { return textlogger.NewLogger(l.config) }

// Follow has the KubeVirt object set the level, by what it says of component, from when mgr runs on.
func (l *Level) Follow(mgr ctrl.Manager, component Component) error {
	log := mgr.GetLogger().WithName("verbosity")
	return follow.Object(mgr, &virtv1.KubeVirt{}, func(object any) { //nolint:wrapcheck // it says what was done
		l.apply(log, component, object)
	})
}

// wanted is what kv, which may be nil, says of component; base when that is nothing.
func wanted(kv *virtv1.KubeVirt, component Component, base int) int {
	if kv == nil {
		return base
	}
	developer := kv.Spec.Configuration.DeveloperConfiguration
	if developer == nil || developer.LogVerbosity == nil {
		return base
	}
	if level := component(developer.LogVerbosity); level > 0 {
		return int(min(level, Max)) //nolint:gosec // bounded
	}
	return base
}

// apply sets the level that object, a KubeVirt or nil, asks for of component.
func (l *Level) apply(log logr.Logger, component Component, object any) {
	kv, _ := object.(*virtv1.KubeVirt)
	level, current := strconv.Itoa(wanted(kv, component, l.base)), l.config.Verbosity()
	if current.String() == level {
		return
	}
	log.Info("Changing how much is logged", "from", current.String(), "to", level)
	if err := current.Set(level); err != nil {
		log.Error(err, "Failed to change how much is logged")
	}
}
