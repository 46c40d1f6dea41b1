// Package transfer is what a worker pod that fills a disk and the controller that
// started it say to each other: why a transfer failed, what it ended with, how far it is.
package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Reason says in one word why a transfer failed. It becomes the reason of a DataVolume's Running condition.
type Reason string

// Reasons of failed transfers.
const (
	NotFound         Reason = "NotFound"         // the server has no such file
	Unauthorized     Reason = "Unauthorized"     // the server wants other credentials
	TLSFailure       Reason = "TLSFailure"       // the server's certificate or TLS itself is not acceptable
	RedirectLoop     Reason = "RedirectLoop"     // redirects lead in a circle, or too far
	SourceChanged    Reason = "SourceChanged"    // the file became another one while it was read
	ConnectionLost   Reason = "ConnectionLost"   // the server went away and did not come back in time
	SourceFailed     Reason = "SourceFailed"     // the server answers with an error of its own
	BadRequest       Reason = "BadRequest"       // the DataVolume asks for what makes no sense
	ChecksumMismatch Reason = "ChecksumMismatch" // the file is not the one that the checksum names
	WrongFormat      Reason = "WrongFormat"      // not a disk image, or a kind that is refused
	InvalidImage     Reason = "InvalidImage"     // a disk image that contradicts itself or ends too early
	TooSmall         Reason = "TooSmall"         // the volume cannot hold the disk
	NoSpace          Reason = "NoSpace"          // the volume's storage is full
	TargetFailed     Reason = "TargetFailed"     // the volume cannot be written
	Internal         Reason = "Internal"         // anything else
)

// fatal are the reasons that trying again does not mend.
var fatal = map[Reason]bool{
	BadRequest: true, ChecksumMismatch: true, WrongFormat: true, InvalidImage: true, TooSmall: true,
}

// Retryable reports whether the same transfer may succeed later.
func (r Reason) Retryable() bool { return !fatal[r] }

// Error is a failed transfer with its reason.
type Error struct {
	Reason Reason
	cause  error
}

// Errorf makes an Error as fmt.Errorf makes an error.
func Errorf(reason Reason, format string, args ...any) error {
	return &Error{Reason: reason, cause: fmt.Errorf(format, args...)}
}

// Error returns the message without the reason, which is shown beside it.
func (e *Error) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf returns the reason in err's chain, or Internal.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return Internal
}

// Result is the termination message of a worker pod: JSON of at most MaxMessage bytes.
type Result struct {
	// Digest names the content of the whole disk (package digest). Empty on failure.
	Digest string `json:"digest,omitempty"`
	// Format is what the source turned out to be: raw, qcow2, qcow2+gz, blank, ….
	Format string `json:"format,omitempty"`
	// VirtualSize is the size of the image's disk in bytes; DiskSize that of the disk made from it, which may be larger.
	VirtualSize int64 `json:"virtualSize,omitempty"`
	DiskSize    int64 `json:"diskSize,omitempty"`
	// Downloaded and Written count bytes from the source and onto the volume.
	Downloaded int64 `json:"downloaded,omitempty"`
	Written    int64 `json:"written,omitempty"`
	// Labels are those that the source asks for the disk's claim.
	Labels map[string]string `json:"labels,omitempty"`
	// Milliseconds is the time from the start to the disk's last byte being safe.
	Milliseconds int64 `json:"milliseconds,omitempty"`
	// Reason and Message say what went wrong; Retryable whether it is tried again. Empty on success.
	Reason    Reason `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
}

// MaxMessage is the kubelet's limit for a termination message.
const MaxMessage = 4096

// Failed returns the result of a transfer that ended with err.
func Failed(err error) Result {
	reason := ReasonOf(err)
	return Result{Reason: reason, Message: err.Error(), Retryable: reason.Retryable()}
}

// Encode returns r as JSON of at most MaxMessage bytes, its message cut when need be.
func (r Result) Encode() ([]byte, error) {
	for {
		data, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encoding the transfer's result: %w", err)
		}
		over := len(data) - MaxMessage
		if over <= 0 || r.Message == "" {
			return data, nil
		}
		keep := max(0, len(r.Message)-over-len("…"))
		for keep > 0 && r.Message[keep]&0xC0 == 0x80 {
			keep--
		}
		if keep == 0 {
			r.Message = ""
			continue
		}
		r.Message = r.Message[:keep] + "…"
	}
}

// Decode reads a termination message. It errs on anything that Encode does not make,
// such as the last lines of a log of a worker that was killed.
func Decode(message string) (Result, error) {
	var r Result
	if err := json.Unmarshal([]byte(message), &r); err != nil {
		return Result{}, fmt.Errorf("decoding a termination message: %w", err)
	}
	return r, nil
}

// Progress is one line of the stream that a worker serves.
type Progress struct {
	// Done and Total are bytes of the whole work; Total is 0 while it is not known.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Reason and Message say why what came last is of no use; empty once another comes.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Percent returns the progress as a DataVolume shows it: "45.34%", or "N/A" while the total is not known.
func (p Progress) Percent() string {
	if p.Total <= 0 {
		return "N/A"
	}
	done := min(max(p.Done, 0), p.Total)
	return fmt.Sprintf("%.2f%%", float64(done)/float64(p.Total)*100)
}

// Kinds of servers whose files an importer reads, as its flag --source names them.
const (
	SourceHTTP = "http"
	SourceS3   = "s3"
	SourceGCS  = "gcs"
)

// Where a worker serves its progress: GET ProgressPath on ProgressPort, with the token as a bearer.
const (
	ProgressPort = 8443
	ProgressPath = "/progress"
	EnvToken     = "SLIPWAY_PROGRESS_TOKEN"
)
