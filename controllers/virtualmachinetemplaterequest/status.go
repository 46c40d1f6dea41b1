package virtualmachinetemplaterequest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the request's status when it has changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted := newStatus(s)
	if equality.Semantic.DeepEqual(wanted, s.request.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.request, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		r.announce(s)
	}
	return err
}

// newStatus computes the request's status from what the pass knows. That of a request that has ended stays as it is.
func newStatus(s *scope) vmtemplatev1beta1.VirtualMachineTemplateRequestStatus {
	if ended(s.request) {
		return s.request.Status
	}
	wanted := *s.request.Status.DeepCopy()
	wanted.TemplateRef = nil
	if s.template != nil && (s.obstacle == nil || !s.obstacle.final) {
		wanted.TemplateRef = &corev1.LocalObjectReference{Name: s.template.Name}
	}
	there, progressing := metav1.ConditionFalse, metav1.ConditionTrue
	reason, message := says(s)
	switch reason {
	case vmtemplatev1beta1.ReasonReconciled:
		there, progressing = metav1.ConditionTrue, metav1.ConditionFalse
	case vmtemplatev1beta1.ReasonFailed:
		progressing = metav1.ConditionFalse
	}
	said := metav1.Condition{Reason: reason, Message: message, ObservedGeneration: s.request.Generation, LastTransitionTime: metav1.NewTime(s.now).Rfc3339Copy()}
	said.Type, said.Status = vmtemplatev1beta1.ConditionReady, there
	meta.SetStatusCondition(&wanted.Conditions, said)
	said.Type, said.Status = vmtemplatev1beta1.ConditionProgressing, progressing
	meta.SetStatusCondition(&wanted.Conditions, said)
	return wanted
}

// says is how far the request is, in a word and in a sentence.
func says(s *scope) (reason, message string) {
	switch {
	case s.done:
		return vmtemplatev1beta1.ReasonReconciled, done(s)
	case s.obstacle != nil && s.obstacle.final:
		return vmtemplatev1beta1.ReasonFailed, s.obstacle.message
	case s.obstacle != nil:
		return vmtemplatev1beta1.ReasonWaiting, s.obstacle.message
	case s.waits != "":
		return vmtemplatev1beta1.ReasonWaiting, s.waits
	}
	return vmtemplatev1beta1.ReasonReconciling, fmt.Sprintf("Making VirtualMachineTemplate %s/%s", s.request.Namespace, templateName(s.request))
}

func done(s *scope) string {
	return fmt.Sprintf("VirtualMachineTemplate %s/%s is ready", s.request.Namespace, templateName(s.request))
}
