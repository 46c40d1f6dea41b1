package source

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// S3 is the access to one bucket. It signs requests with AWS Signature Version 4.
type S3 struct {
	credentials aws.Credentials
	region      string
	signer      *v4.Signer
}

// emptyPayload is the SHA-256 of the body that a GET has.
const emptyPayload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// NewS3 returns what signs requests to the server of address. The session token is that of
// temporary credentials, else empty.
func NewS3(address, accessKeyID, secretKey, sessionToken string) (*S3, error) {
	if accessKeyID == "" || secretKey == "" {
		return nil, transfer.Errorf(transfer.BadRequest, "the Secret of secretRef has an empty accessKeyId or secretKey; fill both, or leave secretRef out for a public bucket")
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, transfer.Errorf(transfer.BadRequest, "the URL cannot be read: %w", err)
	}
	return &S3{
		credentials: aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: secretKey, SessionToken: sessionToken},
		region:      region(u.Hostname()),
		signer:      v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), // S3 escapes a path once
	}, nil
}

// Sign signs the request as it is now, for some minutes.
func (s *S3) Sign(request *http.Request) error {
	// The signature is over the path as S3 escapes it, which is stricter than a URL must be.
	request.URL.RawPath = httpbinding.EscapePath(request.URL.Path, false)
	request.Header.Set("X-Amz-Content-Sha256", emptyPayload)
	err := s.signer.SignHTTP(request.Context(), s.credentials, request, emptyPayload, "s3", s.region, time.Now())
	if err != nil {
		return transfer.Errorf(transfer.BadRequest, "the request cannot be signed: %w", err)
	}
	return nil
}

// awsHost finds the region in the names that Amazon gives its servers: s3.REGION, s3-REGION
// and s3.dualstack.REGION, with the bucket's name before or behind.
var awsHost = regexp.MustCompile(`(?:^|\.)s3(?:-fips)?[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z]+)+-[0-9]+)\.amazonaws\.com(?:\.cn)?$`)

// region is that of a server by its name; servers of others take us-east-1, as does Amazon's own without a region.
func region(host string) string {
	if found := awsHost.FindStringSubmatch(strings.ToLower(host)); found != nil {
		return found[1]
	}
	return "us-east-1"
}

// elsewhere is the error of a request that was signed for another region than the bucket's.
type elsewhere struct {
	error
	region string
}

func (e *elsewhere) Unwrap() error { return e.error }

// move has requests signed for region, and says whether that is another one than before.
func (s *S3) move(region string) bool {
	moved := s.region != region
	s.region = region
	return moved
}

// bucketError is what a server of buckets says of an answer that is no success, as text to put behind
// its status, and the bucket's region where it names that; empty when it says nothing.
func bucketError(response *http.Response) (text, region string) {
	region = response.Header.Get("X-Amz-Bucket-Region")
	var said struct{ Code, Region string }
	if strings.Contains(response.Header.Get("Content-Type"), "xml") && xml.NewDecoder(io.LimitReader(response.Body, 16<<10)).Decode(&said) != nil {
		said.Code = ""
	}
	if region = cmp.Or(region, said.Region); !plainWord.MatchString(region) {
		region = ""
	}
	if region != "" {
		text = ", the bucket's region is " + region
	}
	if plainWord.MatchString(said.Code) {
		text = fmt.Sprintf(" (%s%s)", said.Code, text)
	}
	return text, region
}

// plainWord is what is repeated of a server's answer.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
