// Package imageversion names the versions of image files on web servers, alike for all who ask: virt-controller, and the
// pods that ask with credentials.
package imageversion

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// Prefix begins every digest.
const Prefix = "sha256:"

// Of is the digest of a file's version by what its server says of it (RFC 9110, section 8.8) in answer to a request of the file
// or of a range of it: its tag, or else when it was changed, with its length. It is empty where the server says neither.
func Of(response *http.Response) string {
	if tag := response.Header.Get("Etag"); tag != "" {
		return Digest("etag " + tag)
	}
	modified := response.Header.Get("Last-Modified")
	if modified == "" {
		return ""
	}
	length := strconv.FormatInt(response.ContentLength, 10)
	if response.StatusCode == http.StatusPartialContent {
		_, length, _ = strings.Cut(response.Header.Get("Content-Range"), "/")
	}
	return Digest("modified " + modified + " length " + length)
}

// Digest is that of what tells a version from others.
func Digest(version string) string {
	sum := sha256.Sum256([]byte(version))
	return Prefix + hex.EncodeToString(sum[:])
}
