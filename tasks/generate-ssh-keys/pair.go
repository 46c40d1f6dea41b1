package generatesshkeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// What the private key's Secret says of the pair.
const (
	// labelRun is the TaskRun that made it, by which a retry finds it.
	labelRun = names.Domain + "taskrun-uid"
	// annotationSecret and annotationKey are the Secret of the public key, and its key there.
	annotationSecret = names.Domain + "public-key-secret"
	annotationKey    = names.Domain + "public-key"
)

// boundUndo is how long a failed task may take to remove what it made.
const boundUndo = 30 * time.Second

// pair is where the two keys go.
type pair struct {
	call            *declare.Call
	public, private client.ObjectKey
	options         map[string][]byte
	owners          []metav1.OwnerReference
	// publicKey is the public half, as a line for authorized_keys.
	publicKey []byte
}

// comment is the public key's, as ssh-keygen's would be on a machine named after the TaskRun.
func (p *pair) comment() string {
	user, host := string(p.options["user"]), p.call.TaskRun.Name
	if host == "" {
		host = "generate-ssh-keys"
	}
	if user == "" {
		return host
	}
	return user + "@" + host
}

// madeBefore says whether an earlier try of this TaskRun made the whole pair; half of one is removed.
func (p *pair) madeBefore(ctx context.Context) (bool, error) {
	if p.call.TaskRunUID == "" {
		return false, nil
	}
	var made corev1.SecretList
	if err := p.call.Client.List(ctx, &made, client.InNamespace(p.private.Namespace), client.MatchingLabels{labelRun: string(p.call.TaskRunUID)}); err != nil {
		return false, declare.Coded(codePrivateCreate, fmt.Errorf("looking for Secrets of an earlier try: %w", err))
	}
	for i := range made.Items {
		private := &made.Items[i]
		if private.Type != corev1.SecretTypeSSHAuth || p.private.Name != "" && private.Name != p.private.Name {
			continue
		}
		done, err := p.takeUp(ctx, private)
		if done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// takeUp ends the work of an earlier try when the public half of private was kept, else removes private.
func (p *pair) takeUp(ctx context.Context, private *corev1.Secret) (bool, error) {
	key := client.ObjectKey{Namespace: p.public.Namespace, Name: private.Annotations[annotationSecret]}
	var half corev1.Secret
	err := p.call.Client.Get(ctx, key, &half)
	if client.IgnoreNotFound(err) != nil {
		return false, declare.Coded(codePublicFetch, fmt.Errorf("getting the public key's Secret %s: %w", key, err))
	}
	if publicKey := half.Data[private.Annotations[annotationKey]]; err == nil && publicKey != nil {
		p.private.Name, p.public.Name, p.publicKey = private.Name, key.Name, publicKey
		p.call.Log.Info("an earlier try made the keys", "secret", p.private.String())
		return true, p.results()
	}
	p.call.Log.Info("removing half of a pair that an earlier try left", "secret", private.Namespace+"/"+private.Name)
	if err := p.call.Client.Delete(ctx, private, client.Preconditions{UID: &private.UID}); client.IgnoreNotFound(err) != nil {
		return false, declare.Coded(codePrivateCreate, fmt.Errorf("removing Secret %s/%s: %w", private.Namespace, private.Name, err))
	}
	return false, nil
}

// check fails early: for a private key's Secret that exists, and a public key's that cannot be read.
func (p *pair) check(ctx context.Context) error {
	if p.public.Name != "" {
		if err := p.call.Client.Get(ctx, p.public, &corev1.Secret{}); client.IgnoreNotFound(err) != nil {
			return declare.Coded(codePublicFetch, fmt.Errorf("getting the public key's Secret %s: %w", p.public, err))
		}
	}
	if p.private.Name == "" {
		return nil
	}
	err := p.call.Client.Get(ctx, p.private, &corev1.Secret{})
	if err == nil {
		return p.exists()
	}
	if !apierrors.IsNotFound(err) {
		return declare.Coded(codePrivateCreate, fmt.Errorf("looking for the private key's Secret %s: %w", p.private, err))
	}
	return nil
}

func (p *pair) exists() error {
	return declare.Coded(codePrivateExists, fmt.Errorf("private key's secret %s already exists; name another, or delete it", p.private))
}

// keep writes both halves and the results. What it made it removes again when something fails.
func (p *pair) keep(ctx context.Context, keys *keyPair) error {
	keys.name = "id-rsa-" + rand.String(5) + ".pub"
	private, err := p.createPrivate(ctx, keys)
	if err != nil {
		return err
	}
	if err = p.addPublic(ctx, keys); err == nil {
		err = p.results()
	}
	if err == nil {
		return nil
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), boundUndo)
	defer cancel()
	if undoErr := p.removePublic(cleanup, keys.name); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("removing the public key from Secret %s again: %w", p.public, undoErr))
	}
	if undoErr := p.call.Client.Delete(cleanup, private, client.Preconditions{UID: &private.UID}); client.IgnoreNotFound(undoErr) != nil {
		err = errors.Join(err, fmt.Errorf("removing the private key's Secret %s again: %w", p.private, undoErr))
	}
	return err
}

func (p *pair) createPrivate(ctx context.Context, keys *keyPair) (*corev1.Secret, error) {
	if p.private.Name == "" {
		p.private.Name = "private-key-" + rand.String(8)
	}
	if p.public.Name == "" {
		p.public.Name = "public-key-" + rand.String(8)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.private.Name, Namespace: p.private.Namespace, OwnerReferences: p.owners, Labels: p.mark(),
			Annotations: map[string]string{annotationKey: keys.name, annotationSecret: p.public.Name},
		},
		Type: corev1.SecretTypeSSHAuth,
		Data: map[string][]byte{corev1.SSHAuthPrivateKey: keys.private},
	}
	maps.Copy(secret.Data, p.options)
	p.call.Log.Info("creating Secret with the private key", "secret", p.private.String())
	err := p.call.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		return nil, p.exists()
	}
	if err != nil {
		return nil, declare.Coded(codePrivateCreate, fmt.Errorf("creating the private key's Secret %s: %w", p.private, err))
	}
	return secret, nil
}

// mark are the labels of what the TaskRun makes. By the second one virt-controller finds what goes with a cancelled run.
func (p *pair) mark() map[string]string {
	if p.call.TaskRunUID == "" {
		return nil
	}
	marks := map[string]string{labelRun: string(p.call.TaskRunUID)}
	if len(p.owners) > 0 {
		marks[names.LabelTemporary] = string(p.call.TaskRunUID)
	}
	return marks
}

// addPublic adds the public key to its Secret, which may hold others', and makes it when it does not exist.
func (p *pair) addPublic(ctx context.Context, keys *keyPair) error {
	p.publicKey = keys.public
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: p.public.Name, Namespace: p.public.Namespace, OwnerReferences: p.owners, Labels: p.mark()},
		Data:       map[string][]byte{keys.name: keys.public},
	}
	p.call.Log.Info("adding the public key to Secret", "secret", p.public.String(), "key", keys.name)
	err := p.call.Client.Create(ctx, secret)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return declare.Coded(codePublicCreate, fmt.Errorf("creating the public key's Secret %s: %w", p.public, err))
	}
	if err := p.patchPublic(ctx, keys.name, keys.public); err != nil {
		return declare.Coded(codePublicCreate, fmt.Errorf("adding to the public key's Secret %s: %w", p.public, err))
	}
	return nil
}

// removePublic takes the public key away again, with its Secret when this TaskRun made that.
func (p *pair) removePublic(ctx context.Context, name string) error {
	var secret corev1.Secret
	err := p.call.Client.Get(ctx, p.public, &secret)
	if err != nil || secret.Data[name] == nil {
		return client.IgnoreNotFound(err) //nolint:wrapcheck // keep says what it does
	}
	uid := string(p.call.TaskRunUID)
	if uid != "" && secret.Labels[labelRun] == uid && len(secret.Data) == 1 {
		return client.IgnoreNotFound(p.call.Client.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID})) //nolint:wrapcheck // keep says what it does
	}
	return p.patchPublic(ctx, name, nil)
}

// patchPublic sets one key of the public key's Secret, which is another's; nil takes it away.
func (p *pair) patchPublic(ctx context.Context, name string, value []byte) error {
	data := map[string]any{name: nil}
	if value != nil {
		data[name] = value
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: p.public.Name, Namespace: p.public.Namespace}}
	return p.call.Client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, patch)) //nolint:wrapcheck // the callers say what they do
}

func (p *pair) results() error {
	return declare.Coded(codeResults, errors.Join(
		p.call.Result("publicKeySecretName", p.public.Name),
		p.call.Result("publicKeySecretNamespace", p.public.Namespace),
		p.call.Result("privateKeySecretName", p.private.Name),
		p.call.Result("privateKeySecretNamespace", p.private.Namespace),
		p.call.Result("publicKey", strings.TrimSpace(string(p.publicKey))),
	))
}
