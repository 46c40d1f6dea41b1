package provisioner

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// refusal is an error with a gRPC code, which the provisioning library asks for, whose
// text in events is free of it.
type refusal struct{ status *status.Status }

// Error returns the message alone.
func (r *refusal) Error() string { return r.status.Message() }

// GRPCStatus returns code and message.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

func refuse(code codes.Code, format string, args ...any) error {
	return &refusal{status.Newf(code, format, args...)}
}

// outcome turns an error into what the library expects: the text for events, and
// whether another node may do better.
func outcome(err error) (controller.ProvisioningState, error) {
	if ignored, ok := errors.AsType[*controller.IgnoredError](err); ok {
		return controller.ProvisioningFinished, ignored // which the library finds by its type alone
	}
	known, ok := status.FromError(err)
	if !ok {
		return controller.ProvisioningFinished, err
	}
	switch known.Code() {
	case codes.ResourceExhausted, codes.Unavailable:
		return controller.ProvisioningReschedule, &refusal{known}
	case codes.Aborted, codes.Canceled, codes.DeadlineExceeded:
		return controller.ProvisioningInBackground, &refusal{known}
	default:
		return controller.ProvisioningFinished, &refusal{known}
	}
}
