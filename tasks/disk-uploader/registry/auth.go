package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// login is a transport that answers a registry's question for credentials, by the distribution
// protocol: Basic, or Bearer with a token of the service that the registry names.
type login struct {
	http.RoundTripper
	host, scope    string
	user, password string

	mu     sync.Mutex
	answer string // the header Authorization, "" before the first question
}

// RoundTrip sends a request, and once more with new credentials when the registry wants them. A
// body that cannot be read again is not sent twice.
func (l *login) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != l.host { // where uploads are sent on to has its own ways
		return l.RoundTripper.RoundTrip(request) //nolint:wrapcheck // a RoundTripper changes nothing
	}
	response, err := l.RoundTripper.RoundTrip(l.signed(request))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err //nolint:wrapcheck // a RoundTripper changes nothing
	}
	rewind := request.GetBody
	if request.Body == nil || request.Body == http.NoBody {
		rewind = func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
	known, err := l.ask(request.Context(), response.Header.Values("WWW-Authenticate"))
	if err == nil && (!known || rewind == nil) {
		return response, nil
	}
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	again := request.Clone(request.Context())
	if again.Body, err = rewind(); err != nil {
		return nil, fmt.Errorf("sending the request again: %w", err)
	}
	return l.RoundTripper.RoundTrip(l.signed(again)) //nolint:wrapcheck // a RoundTripper changes nothing
}

// signed is the request with the credentials that are known.
func (l *login) signed(request *http.Request) *http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answer == "" {
		return request
	}
	signed := request.Clone(request.Context())
	signed.Header.Set("Authorization", l.answer)
	return signed
}

// ask gets credentials for the registry's question; false when there are none.
func (l *login) ask(ctx context.Context, questions []string) (bool, error) {
	for _, question := range questions {
		scheme, values, _ := strings.Cut(question, " ")
		switch {
		case strings.EqualFold(scheme, "basic") && l.user != "":
			probe := http.Request{Header: http.Header{}}
			probe.SetBasicAuth(l.user, l.password)
			l.keep(probe.Header.Get("Authorization"))
			return true, nil
		case strings.EqualFold(scheme, "bearer"):
			token, err := l.token(ctx, values)
			if err != nil {
				return false, err
			}
			l.keep("Bearer " + token)
			return true, nil
		}
	}
	return false, nil
}

func (l *login) keep(answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

var challenge = regexp.MustCompile(`(\w+)="([^"]*)"`)

// token asks the service that the question names for a token to push.
func (l *login) token(ctx context.Context, question string) (string, error) {
	query := url.Values{"scope": {l.scope}}
	var realm string
	for _, pair := range challenge.FindAllStringSubmatch(question, -1) {
		switch pair[1] {
		case "realm":
			realm = pair[2]
		case "service":
			query.Set("service", pair[2])
		}
	}
	service, err := url.Parse(realm)
	if err != nil || service.Host == "" {
		return "", fmt.Errorf("the registry wants a token of %q, which is no address", realm)
	}
	maps.Copy(query, service.Query())
	service.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, service.String(), nil)
	if err != nil {
		return "", fmt.Errorf("asking for a token: %w", err)
	}
	if l.user != "" {
		request.SetBasicAuth(l.user, l.password)
	}
	response, err := l.RoundTripper.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("asking %s for a token: %w", service.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", answerOf(response)
	}
	var given struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&given); err != nil {
		return "", fmt.Errorf("reading the token of %s: %w", service.Host, err)
	}
	if token := given.Token + given.AccessToken; token == "" {
		return "", errors.New(service.Host + " gave no token")
	}
	if given.Token == "" {
		return given.AccessToken, nil
	}
	return given.Token, nil
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 1 << 20

// Answer is what a registry said instead of what was wanted.
type Answer struct {
	// Code is the HTTP status.
	Code int
	// To is the request, Message what the registry says about it.
	To, Message string
}

// Error returns the answer with the request.
func (a *Answer) Error() string {
	words := fmt.Sprintf("%s: %d %s", a.To, a.Code, http.StatusText(a.Code))
	if a.Message != "" {
		words += ": " + a.Message
	}
	if a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden {
		words += "; check the credentials in the Secret (keys accessKeyId and secretKey) and their right to push"
	}
	return words
}

// naming is the request without its query, which may hold what nobody else shall know.
func naming(request *http.Request) string {
	return request.Method + " " + request.URL.Host + request.URL.Path
}

// answerOf reads the answer, which has errors in the protocol's form or words of some kind.
func answerOf(response *http.Response) *Answer {
	answer := &Answer{Code: response.StatusCode, To: naming(response.Request)}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer
	}
	var told struct {
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	if json.Unmarshal(text, &told) == nil && len(told.Errors) > 0 {
		answer.Message = strings.TrimSpace(told.Errors[0].Code + " " + told.Errors[0].Message)
		return answer
	}
	const words = 200
	answer.Message = strings.TrimSpace(string(text[:min(len(text), words)]))
	return answer
}
