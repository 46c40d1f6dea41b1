package stepcache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// probeBound is how long a server may take to say which version of a file it has.
const probeBound = time.Minute

// Import is all that decides what an import leaves.
type Import struct {
	// URL is where the file is.
	URL string
	// Checksum is what the file must hash to, such as "sha256:9f86d0…"; empty when nobody said.
	Checksum string
	// Validator tells this version of the file from others at the URL; Probe asks for it.
	Validator string
	// Headers are further headers of the request, which may decide what the server sends.
	Headers []string
	// Size is the size of the volume in bytes: the disk is grown to it.
	Size int64
	// Secrets says that the request carries what is in Secrets or trusts other certificates.
	Secrets bool
	// Insecure says that the server's certificate is not checked.
	Insecure bool
}

// ImportOf returns the import of a disk that a DataVolume asks for; ok is false when it asks for none.
func ImportOf(dv *cdiv1.DataVolume) (i Import, ok bool) {
	if dv.Spec.Source == nil || dv.Spec.Source.HTTP == nil || len(dv.Spec.Checkpoints) > 0 || dv.Spec.ContentType == cdiv1.DataVolumeArchive {
		return i, false
	}
	from := dv.Spec.Source.HTTP
	i = Import{
		URL: from.URL, Checksum: from.Checksum, Headers: from.ExtraHeaders,
		Secrets:  from.SecretRef != "" || from.CertConfigMap != "" || len(from.SecretExtraHeaders) > 0,
		Insecure: ptr.Deref(from.InsecureSkipVerify, false),
	}
	switch {
	case dv.Spec.PVC != nil:
		i.Size = dv.Spec.PVC.Resources.Requests.Storage().Value()
	case dv.Spec.Storage != nil:
		i.Size = dv.Spec.Storage.Resources.Requests.Storage().Value()
	}
	return i, i.Size > 0
}

// Key returns the import's key, or ErrUncacheable. A strong checksum is enough of a key, wherever
// the file comes from; else it takes the URL with what the server says of the file's version.
func (i Import) Key() (Key, error) {
	e := newEncoder(domainImport)
	e.text(strconv.FormatInt(i.Size, 10))
	checksum := strings.ToLower(strings.TrimSpace(i.Checksum))
	e.text(checksum)
	if strong(checksum) {
		return e.key(prefixImport), nil
	}
	switch {
	case i.Secrets:
		return "", fmt.Errorf("%w: what a server sends for a secret is told from other versions by a checksum only; give one (sha256 or sha512)", ErrUncacheable)
	case i.Validator == "":
		return "", fmt.Errorf("%w: neither a checksum (sha256 or sha512) is given nor does the server send a strong ETag, or Last-Modified and a length", ErrUncacheable)
	}
	e.text(i.URL)
	e.text(i.Validator)
	e.texts(i.Headers)
	return e.key(prefixImport), nil
}

// Probed returns the import with its Validator asked for, when the key needs it.
func (i Import) Probed(ctx context.Context) (Import, error) {
	if strong(strings.ToLower(strings.TrimSpace(i.Checksum))) || i.Secrets {
		return i, nil
	}
	var err error
	i.Validator, err = probe(ctx, i)
	return i, err
}

// strong reports whether nobody can make another file of the checksum.
func strong(checksum string) bool {
	return strings.HasPrefix(checksum, "sha256:") || strings.HasPrefix(checksum, "sha512:")
}

// probe asks the server which version of the file it has: by a GET of one byte, for some servers
// refuse HEAD. The answer is empty when the server does not say.
func probe(ctx context.Context, i Import) (string, error) {
	ctx, stop := context.WithTimeout(ctx, probeBound)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, i.URL, nil)
	if err != nil {
		return "", fmt.Errorf("asking for the file's version: the URL: %w", err)
	}
	request.Header.Set("Range", "bytes=0-0")
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "slipway-step-cache")
	for _, header := range i.Headers {
		if name, value, ok := strings.Cut(header, ":"); ok {
			request.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	if i.Insecure {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as the import itself is asked to
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", fmt.Errorf("asking for the file's version: %w", err)
	}
	_, err = io.CopyN(io.Discard, response.Body, 1) // an answer of the whole file is cut off
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return "", fmt.Errorf("asking for the file's version: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusPartialContent {
		return "", fmt.Errorf("asking for the file's version: the server answers %s", response.Status)
	}
	return validator(response), nil
}

// validator returns a strong ETag, or the date of the last change with the file's length.
func validator(response *http.Response) string {
	if tag := response.Header.Get("Etag"); strings.HasPrefix(tag, `"`) {
		return "etag " + tag
	}
	length := ""
	if response.StatusCode == http.StatusPartialContent {
		_, length, _ = strings.Cut(response.Header.Get("Content-Range"), "/")
	} else if response.ContentLength >= 0 {
		length = strconv.FormatInt(response.ContentLength, 10)
	}
	modified := response.Header.Get("Last-Modified")
	if modified == "" || length == "" || length == "*" {
		return ""
	}
	return "modified " + modified + " length " + length
}
