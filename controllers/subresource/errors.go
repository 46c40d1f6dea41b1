package subresource

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Kinds as refusals name them.
const (
	kindVM  = "virtualmachine"
	kindVMI = "virtualmachineinstance"
)

// What refusals say, in the field's own words.
const (
	vmNotRunning     = "VM is not running"
	vmiNotRunning    = "VMI is not running"
	vmiNotPaused     = "VMI is not paused"
	vmiPaused        = "VMI is paused"
	agentMissing     = "VMI does not have guest agent connected"
	alreadyUnderway  = "unable to complete request: stop/start already underway"
	unreadableBody   = "Can not unmarshal Request body to struct, error: %s"
	unconnectable    = "Unable to connect to VirtualMachineInstance because phase is %s instead of %s or %s"
	noInterfaces     = "no network interfaces are present"
	notAValidMachine = "Object is not a valid VirtualMachine"
)

// refusal is an answer to the client that is not what it asked for. Any other error is ours,
// and answered as such.
type refusal struct {
	status metav1.Status
	// raced says that somebody changed the object between its judgement and its patch.
	raced bool
}

// Error is what the client reads.
func (r *refusal) Error() string { return r.status.Message }

func refuse(err *apierrors.StatusError) error { return &refusal{status: err.ErrStatus} }

func conflict(kind, name, format string, args ...any) error {
	return refuse(apierrors.NewConflict(virtv1.Resource(kind), name, fmt.Errorf(format, args...)))
}

// judgeAgain calls do, which reads an object, judges it and patches it as it was judged, a few times while others
// change it in between, as its controller does when it writes its status.
func judgeAgain(do func() error) error {
	raced := func(err error) bool {
		refused, ok := errors.AsType[*refusal](err)
		return ok && refused.raced
	}
	return retry.OnError(retry.DefaultBackoff, raced, do) //nolint:wrapcheck // it is do's
}

func badRequest(format string, args ...any) error {
	return refuse(apierrors.NewBadRequest(fmt.Sprintf(format, args...)))
}

// statusOf is the status that tells err.
func statusOf(err error) metav1.Status {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// fail answers r with what went wrong.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code >= http.StatusInternalServerError && status.Code != http.StatusNotImplemented {
		log.FromContext(r.Context()).Error(err, "answering", "method", r.Method, "path", r.URL.Path, "code", status.Code)
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	write(w, r, int(status.Code), status)
}

// write answers r with body as JSON.
func write(w http.ResponseWriter, r *http.Request, code int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		log.FromContext(r.Context()).Error(err, "encoding an answer", "path", r.URL.Path)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(content); err != nil {
		log.FromContext(r.Context()).V(1).Info("the client went away", "path", r.URL.Path, "reason", err.Error())
	}
}
