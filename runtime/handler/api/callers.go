package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

const (
	// remember is how long the API server's word about a token holds.
	remember = time.Minute
	// maxRemembered bounds the tokens that are remembered, whoever sends them.
	maxRemembered = 256
	// maxReviews bounds the questions that are open at a time: strangers must not use up
	// what this node may ask the API server.
	maxReviews = 4
	// apiAccount is the ServiceAccount of virt-api.
	apiAccount = "virt-api"
)

// callers knows who may call: virt-api of this installation, and nobody else. It shows a
// token that the API server made for this very purpose.
type callers struct {
	client client.Client
	user   string
	open   chan struct{}
	now    func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

// verdict is whose token it is; empty for nobody's.
type verdict struct {
	user  string
	until time.Time
}

func newCallers(c client.Client, namespace string) *callers {
	return &callers{
		client: c, user: "system:serviceaccount:" + namespace + ":" + apiAccount,
		open: make(chan struct{}, maxReviews), now: time.Now, known: map[[sha256.Size]byte]verdict{},
	}
}

// admit passes requests of virt-api on to next, and refuses all others.
func (c *callers) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.check(r); err != nil {
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *callers) check(r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return refusal(apierrors.NewUnauthorized("virt-handler takes requests of virt-api only, which shows its token"))
	}
	user, err := c.whose(r.Context(), token)
	if err != nil {
		return err
	}
	switch user {
	case c.user:
		return nil
	case "":
		return refusal(apierrors.NewUnauthorized("the token is not valid for virt-handler"))
	default:
		return refusal(apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("virt-handler takes requests of %s only, not of %s", c.user, user)))
	}
}

// whose returns the user whom token stands for; empty for nobody.
func (c *callers) whose(ctx context.Context, token string) (string, error) {
	key := sha256.Sum256([]byte(token))
	if known, found := c.recall(key); found {
		return known.user, nil
	}
	select {
	case c.open <- struct{}{}:
		defer func() { <-c.open }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting to have a token reviewed: %w", ctx.Err())
	}
	if known, found := c.recall(key); found { // it was asked meanwhile
		return known.user, nil
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{names.HandlerAudience}}}
	asked := c.now()
	if err := c.client.Create(ctx, review); err != nil {
		return "", refusal(apierrors.NewServiceUnavailable(fmt.Sprintf("having the token reviewed: %v", err)))
	}
	user := ""
	if review.Status.Authenticated && slices.Contains(review.Status.Audiences, names.HandlerAudience) {
		user = review.Status.User.Username
	}
	c.keep(key, verdict{user: user, until: asked.Add(remember)})
	return user, nil
}

func (c *callers) recall(key [sha256.Size]byte) (verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, found := c.known[key]
	return known, found && c.now().Before(known.until)
}

func (c *callers) keep(key [sha256.Size]byte, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxRemembered {
		maps.DeleteFunc(c.known, func(_ [sha256.Size]byte, old verdict) bool { return !c.now().Before(old.until) })
	}
	if len(c.known) >= maxRemembered {
		clear(c.known) // they are asked for again
	}
	c.known[key] = v
}
