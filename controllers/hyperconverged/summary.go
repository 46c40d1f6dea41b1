package hyperconverged

import (
	"errors"
	"fmt"
	"strings"
)

// Reasons of conditions.
const (
	ReasonCompleted   = "ReconcileCompleted"      // all is as it is wanted
	ReasonFailed      = "ReconcileFailed"         // a step failed and is tried again
	ReasonConflict    = "ConflictingInstallation" // another installation is in the cluster
	ReasonDeploying   = "DeploymentInProgress"    // components are on their way
	ReasonUpdating    = "UpdateInProgress"        // another version begins
	ReasonFailing     = "ComponentFailing"        // a component does not come up by waiting
	ReasonWaiting     = "WaitingForPrerequisite"  // something outside is missing
	ReasonBlocked     = "UninstallBlocked"        // workloads keep the installation from being removed
	ReasonRemoving    = "UninstallInProgress"     // components are being removed
	ReasonTaken       = "NamesTaken"              // others' objects have the names of common ones
	ReasonTainted     = "UnsupportedFeatureAnnotation"
	messageAllWell    = "Reconcile completed successfully"
	messageNoComplain = "All components are ready."
	messageBundles    = "Tasks and pipelines are where they are asked for"
)

// verdict is one answer with its reason and a sentence for people.
type verdict struct {
	Yes     bool
	Reason  string
	Message string
}

// summary is what a pass found, as the questions that conditions answer.
type summary struct {
	Available, Progressing, Degraded, Complete verdict
}

// summarize answers from what the pass knows. It is pure: the same scope, the same answers.
func summarize(s *scope) summary {
	missing, failing := lacking(s.workloads)
	sum := summary{
		Available:   verdict{true, ReasonCompleted, messageAllWell},
		Progressing: verdict{false, ReasonCompleted, messageAllWell},
		Degraded:    verdict{false, ReasonCompleted, messageAllWell},
		Complete:    verdict{true, ReasonCompleted, messageAllWell},
	}
	if missing != "" {
		sum.Available = verdict{false, ReasonDeploying, missing}
		sum.Progressing = verdict{true, ReasonDeploying, missing}
	} else if waits := s.waits(); waits != "" {
		sum.Progressing = verdict{true, ReasonWaiting, waits}
	}
	if failing != "" {
		sum.Available = verdict{false, ReasonFailing, failing}
		sum.Degraded = verdict{true, ReasonFailing, failing}
	}
	if s.hco.DeletionTimestamp != nil {
		sum.Progressing = verdict{true, ReasonRemoving, "Components are being removed"}
		sum.Complete = sum.Progressing.not()
	}
	if len(s.blockers) > 0 {
		blocked := verdict{true, ReasonBlocked, blockedMessage(s.blockers)}
		sum.Degraded, sum.Complete = blocked, blocked.not()
		sum.Progressing = blocked.not()
	}
	return withError(sum, s)
}

// withError puts a failed step over what was found before it.
func withError(sum summary, s *scope) summary {
	if s.err == nil {
		return sum
	}
	failed := verdict{true, ReasonFailed, s.err.Error()}
	if _, conflict := errors.AsType[*conflictError](s.err); conflict {
		failed.Reason = ReasonConflict
		sum.Progressing = failed.not()
	}
	sum.Degraded, sum.Complete = failed, failed.not()
	if s.workloads == nil {
		sum.Available = failed.not() // the step failed before anything could be seen
	}
	return sum
}

func (v verdict) not() verdict {
	v.Yes = !v.Yes
	return v
}

// lacking says in one sentence what is not ready, and what will not get ready by waiting.
func lacking(workloads []workload) (missing, failing string) {
	var waits, fails []string
	for _, w := range workloads {
		if w.Missing == "" {
			continue
		}
		text := w.Name + ": " + w.Missing
		waits = append(waits, text)
		if w.Failing {
			fails = append(fails, text)
		}
	}
	return strings.Join(waits, "; "), strings.Join(fails, "; ")
}

func blockedMessage(blockers []string) string {
	return fmt.Sprintf("what needs the components still exists: %s; delete it first", strings.Join(blockers, ", "))
}
