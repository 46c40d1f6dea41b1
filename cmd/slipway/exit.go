package main

import "errors"

// coder is an error that knows with which code the program ends.
type coder interface{ ExitCode() int }

// reported is an error that its command printed already.
type reported struct{ error }

// Unwrap returns the cause.
func (r *reported) Unwrap() error { return r.error }

// exitCode returns the code that err asks for, or 1.
func exitCode(err error) int {
	var c coder
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return 1
}

// isReported says whether err was printed already.
func isReported(err error) bool {
	var r *reported
	return errors.As(err, &r)
}
