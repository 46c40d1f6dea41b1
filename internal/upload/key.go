package upload

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is in the Secret of the signing key, in the field's names, and in the ConfigMap beside it.
const (
	keyPrivate  = "id_rsa"
	keyPrevious = "id_rsa.previous" // the key before, which signs until everybody has heard of the new one
	keyMade     = "made"            // when the new one was made
	// KeyPublic holds public keys in PEM, the newest first.
	KeyPublic = "id_rsa.pub"
)

const (
	keyBits = 2048
	// A key lasts a week. A new one signs nothing in its first minute, until the proxies know it, and
	// the one before is known for as long as its tokens may be in use.
	keyLifetime = 7 * 24 * time.Hour
	keySpread   = time.Minute
)

// SigningKey keeps the key that signs tokens, which all replicas of virt-api share.
type SigningKey struct {
	// Namespace is that of the installation.
	Namespace string
	Live      client.Reader
	Writer    client.Writer
	Now       func() time.Time
}

// Get returns the key to sign with at this moment. It makes one when there is none or the last is
// old, and publishes by what keys tokens are known. Of replicas that do so at once one wins.
func (k *SigningKey) Get(ctx context.Context) (*rsa.PrivateKey, error) {
	const attempts = 5
	var err error
	for range attempts {
		var key *rsa.PrivateKey
		if key, err = k.get(ctx); err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return key, err
		}
	}
	return nil, fmt.Errorf("keeping the signing key: other replicas kept winning: %w", err)
}

func (k *SigningKey) get(ctx context.Context) (*rsa.PrivateKey, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: SigningSecret}}
	missing, err := k.read(ctx, secret)
	if err != nil {
		return nil, err
	}
	now := k.Now()
	signing, data, err := renewKey(secret.Data, now)
	if err != nil {
		return nil, err
	}
	if data != nil {
		secret.Data = data
		if err := k.write(ctx, secret, missing); err != nil {
			return nil, err
		}
	}
	return signing, k.publish(ctx, secret.Data)
}

// publish writes the public keys of the Secret's data where the proxies look.
func (k *SigningKey) publish(ctx context.Context, data map[string][]byte) error {
	public, err := publicKeys(data)
	if err != nil {
		return err
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: SigningSecret}}
	missing, err := k.read(ctx, configMap)
	if err != nil {
		return err
	}
	if configMap.Data[KeyPublic] == string(public) {
		return nil
	}
	configMap.Data = map[string]string{KeyPublic: string(public)}
	return k.write(ctx, configMap, missing)
}

func (k *SigningKey) read(ctx context.Context, object client.Object) (missing bool, err error) {
	err = k.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", object, object.GetName(), err)
	}
	return false, nil
}

func (k *SigningKey) write(ctx context.Context, object client.Object, missing bool) (err error) {
	if missing {
		err = k.Writer.Create(ctx, object)
	} else {
		err = k.Writer.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("writing %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// renewKey returns the key to sign with at now, and what the Secret's data should be; nil when it is.
func renewKey(data map[string][]byte, now time.Time) (signing *rsa.PrivateKey, renewed map[string][]byte, err error) {
	current := privateKey(data[keyPrivate])
	made, parseErr := time.Parse(time.RFC3339, string(data[keyMade]))
	if current == nil || parseErr != nil || now.Sub(made) >= keyLifetime || made.After(now.Add(keySpread)) {
		fresh, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return nil, nil, fmt.Errorf("making a signing key: %w", err)
		}
		renewed = map[string][]byte{
			keyPrivate: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(fresh)}),
			keyMade:    []byte(now.UTC().Format(time.RFC3339)),
		}
		if current == nil {
			return fresh, renewed, nil
		}
		renewed[keyPrevious] = data[keyPrivate]
		return current, renewed, nil
	}
	previous := privateKey(data[keyPrevious])
	switch age := now.Sub(made); {
	case previous == nil:
		return current, nil, nil
	case age < keySpread:
		return previous, nil, nil
	case age > keySpread+TokenLifetime+tokenLeeway:
		renewed = maps.Clone(data)
		delete(renewed, keyPrevious)
	}
	return current, renewed, nil
}

func privateKey(data []byte) *rsa.PrivateKey {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	return key
}

// publicKeys returns, in PEM, by what the tokens are known that the keys in data sign.
func publicKeys(data map[string][]byte) ([]byte, error) {
	var all bytes.Buffer
	for _, name := range []string{keyPrivate, keyPrevious} {
		key := privateKey(data[name])
		if key == nil {
			continue
		}
		der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			return nil, fmt.Errorf("encoding a public key: %w", err)
		}
		all.Write(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	return all.Bytes(), nil
}

// ParsePublicKeys reads the keys that SigningKey has published. Without any it errs.
func ParsePublicKeys(data string) ([]*rsa.PublicKey, error) {
	var keys []*rsa.PublicKey
	for block, rest := pem.Decode([]byte(data)); block != nil; block, rest = pem.Decode(rest) {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a public key: %w", err)
		}
		key, ok := parsed.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("reading a public key: it is a %T, want RSA", parsed)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("reading public keys: there is none")
	}
	return keys, nil
}
