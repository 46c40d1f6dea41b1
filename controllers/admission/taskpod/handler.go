package taskpod

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Handler returns the webhook for new pods that carry taskdisk.Label. It refuses none: what
// it cannot look up is told as a warning, and the task says what is wrong.
func Handler(reader client.Reader) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		var pod corev1.Pod
		if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the pod: %w", err))
		}
		claim, ok := Claim(&pod)
		if !ok {
			return admission.Allowed("")
		}
		facts, warnings := look(ctx, reader, client.ObjectKey{Namespace: request.Namespace, Name: claim})
		return admission.Patched("", Fit(&pod, facts)...).WithWarnings(warnings...)
	})
}

// look asks for what Fit must know; what it does not learn is as if it were not so.
func look(ctx context.Context, reader client.Reader, key client.ObjectKey) (Facts, []string) {
	var facts Facts
	var warnings []string
	var pvc corev1.PersistentVolumeClaim
	if err := reader.Get(ctx, key, &pvc); err != nil {
		warnings = append(warnings, fmt.Sprintf("claim %s cannot be read, so it is taken for a file system: %v", key.Name, err))
	}
	facts.Block = pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode == corev1.PersistentVolumeBlock
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes); err != nil {
		warnings = append(warnings, fmt.Sprintf("nodes cannot be listed, so the task runs without KVM: %v", err))
	}
	facts.KVM = OfferKVM(nodes.Items)
	return facts, warnings
}
