package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/runtime/handler/session"
)

// reasonNotImplemented is the reason of a Status with code 501, for which Kubernetes has none.
const reasonNotImplemented metav1.StatusReason = "NotImplemented"

// refusal is the error that a request is answered with.
func refusal(status *apierrors.StatusError) error { return status }

// refuse answers a request with an error, as Kubernetes does.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code >= http.StatusInternalServerError {
		log.FromContext(r.Context()).Error(err, "Failed to answer a request", "method", r.Method, "path", r.URL.Path)
	}
	if status.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	writeJSON(w, r, int(status.Code), status)
}

// statusOf is what clients read of err: it says its code itself, or is the launcher's.
func statusOf(err error) metav1.Status {
	var status metav1.Status
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		status = known.Status()
	case errors.Is(err, session.ErrOldLauncher):
		status = metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: reasonNotImplemented, Message: err.Error()}
	case errors.Is(err, session.ErrSilent):
		status = apierrors.NewServiceUnavailable(err.Error()).Status()
	case errors.Is(err, session.ErrNotConnected):
		status = apierrors.NewServiceUnavailable(err.Error() + "; try again in a moment").Status()
	default:
		status = apierrors.NewInternalError(err).Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return status
}

// writeJSON answers with value; an answer that cannot be written has nobody to tell.
func writeJSON(w http.ResponseWriter, r *http.Request, code int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		log.FromContext(r.Context()).Error(err, "Failed to encode an answer", "path", r.URL.Path)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}
