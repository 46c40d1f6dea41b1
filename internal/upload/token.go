package upload

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What every token says.
const (
	tokenIssuer    = "cdi-apiserver"
	tokenOperation = "Upload"
	tokenResource  = "persistentvolumeclaims"
	// TokenLifetime is how long a token is good, and tokenLeeway by how much clocks may differ.
	TokenLifetime = 5 * time.Minute
	tokenLeeway   = 10 * time.Second
	// maxToken is more than any token of ours has, in bytes: nothing longer is looked at.
	maxToken = 8 << 10
)

// Target is the claim that a token lets its holder fill. With a UID it is that one, and no other that has its name later.
type Target struct {
	Namespace, Name string
	UID             types.UID
}

// paramUID among the params of a token is the UID of its target.
const paramUID = "uid"

// payload is what a token says beside the claims that every JSON Web Token has.
type payload struct {
	Operation string                      `json:"operation,omitempty"`
	Name      string                      `json:"name,omitempty"`
	Namespace string                      `json:"namespace,omitempty"`
	Resource  metav1.GroupVersionResource `json:"resource"`
	Params    map[string]string           `json:"params,omitempty"`
}

// ErrPurpose says that a token is good, but for something else than an upload.
var ErrPurpose = errors.New("the token is not for an upload")

// Sign makes a token for target: a JSON Web Token with an RSA-PSS signature (PS256).
func Sign(key *rsa.PrivateKey, target Target, now time.Time) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.PS256, Key: key}, nil)
	if err != nil {
		return "", fmt.Errorf("preparing to sign a token: %w", err)
	}
	params := map[string]string{}
	if target.UID != "" {
		params[paramUID] = string(target.UID)
	}
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: tokenIssuer, IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(TokenLifetime)),
	}).Claims(payload{
		Operation: tokenOperation, Name: target.Name, Namespace: target.Namespace,
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: tokenResource}, Params: params,
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return token, nil
}

// Verify returns what token is for, when one of keys has signed it, it is not over at now, and it
// is for an upload (ErrPurpose when not).
func Verify(keys []*rsa.PublicKey, token string, now time.Time) (Target, error) {
	if len(token) > maxToken {
		return Target{}, errors.New("reading the token: it is too long")
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.PS256})
	if err != nil {
		return Target{}, fmt.Errorf("reading the token: %w", err)
	}
	var claims jwt.Claims
	var said payload
	err = errors.New("no key to know it by is there yet")
	for _, key := range keys {
		if err = parsed.Claims(key, &claims, &said); err == nil {
			break
		}
	}
	if err != nil {
		return Target{}, fmt.Errorf("verifying the token: %w", err)
	}
	if claims.Expiry == nil || claims.NotBefore == nil {
		return Target{}, errors.New("verifying the token: it does not say until when it is good")
	}
	if err := claims.ValidateWithLeeway(jwt.Expected{Issuer: tokenIssuer, Time: now}, tokenLeeway); err != nil {
		return Target{}, fmt.Errorf("verifying the token: %w; ask for another", err)
	}
	if said.Operation != tokenOperation || said.Resource.Resource != tokenResource || said.Resource.Group != "" || said.Name == "" || said.Namespace == "" {
		return Target{}, ErrPurpose
	}
	return Target{Namespace: said.Namespace, Name: said.Name, UID: types.UID(said.Params[paramUID])}, nil
}
