// Package verbosity lets the KubeVirt object say how much the components log while they run,
// spec.configuration.developerConfiguration.logVerbosity, and the CDI object those parts that do CDI's work:
// spec.config.logVerbosity.
package verbosity

import (
	"os"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2/textlogger"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/internal/follow"
)

// Max is the largest level: everything is logged.
const Max = 9

// Flag is the flag of a pod's program that says how much it logs.
const Flag = "verbosity"

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

// Level is how much a program, or a part of it, logs, to standard error.
type Level struct {
	config *textlogger.Config
	parts  []*Level

	mu   sync.Mutex // of all below
	base int
	said *int // by the object; nil for nothing
}

// New returns a level that is base while the object that is followed names none.
func New(base int) *Level {
	return &Level{config: textlogger.NewConfig(textlogger.Verbosity(base), textlogger.Output(os.Stderr)), base: base}
}

// Part returns the level of a part of the program, which is l while the object that the part follows names none. It is
// called before l follows anything.
func (l *Level) Part() *Level {
	part := New(l.base)
	l.parts = append(l.parts, part)
	return part
}

// Logger logs at the level, also when that changes later.
func (l *Level) Logger() logr.Logger { return textlogger.NewLogger(l.config) }

// Follow has the KubeVirt object set the level, by what it says of component, from when mgr runs on.
func (l *Level) Follow(mgr ctrl.Manager, component Component) error {
	log := mgr.GetLogger().WithName("verbosity")
	return follow.Object(mgr, &virtv1.KubeVirt{}, func(object any) { //nolint:wrapcheck // it says what was done
		kv, _ := object.(*virtv1.KubeVirt)
		l.say(log, ofKubeVirt(kv, component))
	})
}

// FollowCDI has the logVerbosity of the CDIConfig, which is the CDI object's, set the level, from when mgr runs on.
func (l *Level) FollowCDI(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithName("verbosity").WithValues("of", "CDI")
	return follow.Object(mgr, &cdiv1.CDIConfig{}, func(object any) { //nolint:wrapcheck // it says what was done
		config, _ := object.(*cdiv1.CDIConfig)
		l.say(log, ofCDI(config))
	})
}

// ofKubeVirt is what kv, which may be nil, says of component; nil when that is nothing, as it is of level 0.
func ofKubeVirt(kv *virtv1.KubeVirt, component Component) *int {
	if kv == nil {
		return nil
	}
	developer := kv.Spec.Configuration.DeveloperConfiguration
	if developer == nil || developer.LogVerbosity == nil {
		return nil
	}
	if level := component(developer.LogVerbosity); level > 0 {
		return new(int(min(level, Max))) //nolint:gosec // bounded
	}
	return nil
}

// ofCDI is what config, which may be nil, says; nil when that is nothing. Level 0 is one.
func ofCDI(config *cdiv1.CDIConfig) *int {
	if config == nil || config.Spec.LogVerbosity == nil {
		return nil
	}
	return new(int(min(max(*config.Spec.LogVerbosity, 0), Max)))
}

// say sets the level that the object says, nil for none.
func (l *Level) say(log logr.Logger, said *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = said
	l.settle(log)
}

// rest sets the level that is while the object says none.
func (l *Level) rest(log logr.Logger, base int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = base
	l.settle(log)
}

// settle makes the level, and those of the parts, what was said.
func (l *Level) settle(log logr.Logger) {
	level := l.base
	if l.said != nil {
		level = *l.said
	}
	wanted, current := strconv.Itoa(level), l.config.Verbosity()
	if current.String() == wanted {
		return
	}
	log.Info("Changing how much is logged", "from", current.String(), "to", wanted)
	if err := current.Set(wanted); err != nil {
		log.Error(err, "Failed to change how much is logged")
	}
	for _, part := range l.parts {
		part.rest(log, level)
	}
}
