// Package generatesshkeys makes a pair of SSH keys and keeps each half in a Secret.
package generatesshkeys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeResults       = 248
	codePrivateCreate = 249
	codePublicCreate  = 250
	codePublicFetch   = 251
	codePrivateExists = 253
	codeKeygen        = 254
)

// labelRun marks the Secrets of a TaskRun, by which a retry finds what it made before.
const labelRun = names.Domain + "taskrun-uid"

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "generate-ssh-keys",
		Title:   "Generate SSH keys",
		Summary: "Makes a pair of SSH keys and keeps the private key in one Secret and the public key in another.",
		Details: `
The private key's Secret has the type kubernetes.io/ssh-auth and holds privateKeyConnectionOptions beside the key, so
` + "`execute-in-vm`" + ` can use it as it is. The public key is added to the Secret that publicKeySecretName names, or to a new one.
A private key's Secret that exists is never overwritten. A retry of the same TaskRun takes up what it made before, and a
failure leaves no half pair behind.

Exit codes: 254 options of ssh-keygen, 253 the private key's Secret exists, 251 the public key's Secret could not be read,
250 or 249 the public or private key's Secret could not be written, 248 results, 255 a parameter is wrong.`,
		Image: declare.Slipway,
		Params: []declare.Param{
			{Name: "publicKeySecretName", Description: "Secret to add the public key to; by default a new one with a generated name.", Kind: "name"},
			{Name: "publicKeySecretNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "privateKeySecretName", Description: "Secret to make for the private key; by default its name is generated.", Kind: "name"},
			{Name: "privateKeySecretNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "privateKeyConnectionOptions", Description: "Further keys of the private key's Secret, each as KEY:VALUE, such as user:debian or disable-strict-host-key-checking:true.", Array: true},
			{Name: "additionalSSHKeygenOptions", Description: "Options of ssh-keygen: -t rsa|ecdsa|ed25519, -b bits, -C comment."},
			{Name: "setOwnerReference", Description: "Make the TaskRun own the Secrets that the task makes, so that they go with the run.", Default: "false", Kind: "boolean"},
		},
		Results: []declare.Result{
			{Name: "publicKeySecretName", Description: "Secret with the public key."},
			{Name: "publicKeySecretNamespace", Description: "Its namespace."},
			{Name: "privateKeySecretName", Description: "Secret with the private key."},
			{Name: "privateKeySecretNamespace", Description: "Its namespace."},
			{Name: "publicKey", Description: "The public key, as a line for authorized_keys."},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		},
		Examples: []declare.Example{{
			Title: "Keys for execute-in-vm",
			Params: map[string]any{
				"publicKeySecretName":         "vm-public-keys",
				"privateKeySecretName":        "vm-private-key",
				"privateKeyConnectionOptions": []string{"user:debian", "disable-strict-host-key-checking:true"},
				"additionalSSHKeygenOptions":  "-t ed25519",
			},
		}},
		Run: run,
	}
}

// pair is where the two keys go.
type pair struct {
	call            *declare.Call
	public, private client.ObjectKey
	options         map[string][]byte
	owners          []metav1.OwnerReference
	// publicKey is the public half, as a line for authorized_keys.
	publicKey []byte
}

func run(ctx context.Context, call *declare.Call) error {
	options, err := connectionOptions(call.Array("privateKeyConnectionOptions"))
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	p := &pair{
		call: call, options: options,
		public:  client.ObjectKey{Namespace: call.NamespaceOr("publicKeySecretNamespace"), Name: call.String("publicKeySecretName")},
		private: client.ObjectKey{Namespace: call.NamespaceOr("privateKeySecretNamespace"), Name: call.String("privateKeySecretName")},
	}
	if err := p.readOwner(); err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	if done, err := p.madeBefore(ctx); done || err != nil {
		return err
	}
	keys, err := generate(call.String("additionalSSHKeygenOptions"))
	if err != nil {
		return declare.Coded(codeKeygen, fmt.Errorf("additionalSSHKeygenOptions: %w", err))
	}
	private, err := p.createPrivate(ctx, keys)
	if err != nil {
		return err
	}
	if err := p.addPublic(ctx, keys); err != nil {
		cleanup := context.WithoutCancel(ctx)
		if deleteErr := call.Client.Delete(cleanup, private); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("removing the private key's Secret %s again: %w", p.private, deleteErr))
		}
		return err
	}
	return p.results()
}

// readOwner makes the TaskRun own the Secrets when it was asked to.
func (p *pair) readOwner() error {
	own, err := p.call.Bool("setOwnerReference")
	if err != nil || !own {
		return err
	}
	owner, err := p.call.Owner()
	if err != nil {
		return err
	}
	p.owners = []metav1.OwnerReference{owner}
	return nil
}

// connectionOptions reads items of the form KEY:VALUE.
func connectionOptions(items []string) (map[string][]byte, error) {
	options := map[string][]byte{}
	for _, item := range items {
		key, value, ok := strings.Cut(item, ":")
		if !ok || key == "" {
			return nil, fmt.Errorf("privateKeyConnectionOptions: %q is not of the form KEY:VALUE", item)
		}
		options[strings.TrimSpace(key)] = []byte(strings.TrimSpace(value))
	}
	return options, nil
}

// madeBefore says whether an earlier try of this TaskRun made the whole pair.
func (p *pair) madeBefore(ctx context.Context) (bool, error) {
	if p.call.TaskRunUID == "" {
		return false, nil
	}
	var made corev1.SecretList
	if err := p.call.Client.List(ctx, &made, client.InNamespace(p.private.Namespace), client.MatchingLabels{labelRun: string(p.call.TaskRunUID)}); err != nil {
		return false, declare.Coded(codePrivateCreate, fmt.Errorf("looking for Secrets of an earlier try: %w", err))
	}
	for _, secret := range made.Items {
		public := secret.Annotations[labelRun]
		if secret.Type != corev1.SecretTypeSSHAuth {
			continue
		}
		p.private.Name, p.public.Name = secret.Name, public
		var half corev1.Secret
		err := p.call.Client.Get(ctx, p.public, &half)
		if err == nil && half.Data[publicKeyName(&secret)] != nil {
			p.call.Log.Info("an earlier try made the keys", "secret", p.private.String())
			p.publicKey = half.Data[publicKeyName(&secret)]
			return true, p.results()
		}
		if client.IgnoreNotFound(err) != nil {
			return false, declare.Coded(codePublicFetch, fmt.Errorf("getting the public key's Secret %s: %w", p.public, err))
		}
		p.call.Log.Info("removing half of a pair that an earlier try left", "secret", p.private.String())
		if err := p.call.Client.Delete(ctx, &secret); client.IgnoreNotFound(err) != nil {
			return false, declare.Coded(codePrivateCreate, fmt.Errorf("removing Secret %s: %w", p.private, err))
		}
	}
	return false, nil
}

// publicKeyName is the key under which the public half of a private key's Secret is kept.
func publicKeyName(private *corev1.Secret) string {
	return private.Annotations[names.Domain+"public-key"]
}

func (p *pair) createPrivate(ctx context.Context, keys *keyPair) (*corev1.Secret, error) {
	if p.private.Name == "" {
		p.private.Name = "private-key-" + rand.String(8)
	}
	if p.public.Name == "" {
		p.public.Name = "public-key-" + rand.String(8)
	}
	keys.name = "id-rsa-" + rand.String(5) + ".pub"
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.private.Name, Namespace: p.private.Namespace, OwnerReferences: p.owners,
			Annotations: map[string]string{names.Domain + "public-key": keys.name, labelRun: p.public.Name},
		},
		Type: corev1.SecretTypeSSHAuth,
		Data: map[string][]byte{"type": []byte("ssh")},
	}
	if p.call.TaskRunUID != "" {
		secret.Labels = map[string]string{labelRun: string(p.call.TaskRunUID)}
	}
	maps.Copy(secret.Data, p.options)
	secret.Data[corev1.SSHAuthPrivateKey] = keys.private
	p.call.Log.Info("creating Secret with the private key", "secret", p.private.String())
	err := p.call.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		return nil, declare.Coded(codePrivateExists, fmt.Errorf("private key's secret %s already exists; name another, or delete it", p.private))
	}
	if err != nil {
		return nil, declare.Coded(codePrivateCreate, fmt.Errorf("creating the private key's Secret %s: %w", p.private, err))
	}
	return secret, nil
}

// addPublic adds the public key to its Secret, which may hold others', and makes it when it does not exist.
func (p *pair) addPublic(ctx context.Context, keys *keyPair) error {
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: p.public.Name, Namespace: p.public.Namespace, OwnerReferences: p.owners},
		Data:       map[string][]byte{keys.name: keys.public},
	}
	p.publicKey = keys.public
	p.call.Log.Info("adding the public key to Secret", "secret", p.public.String(), "key", keys.name)
	err := p.call.Client.Create(ctx, secret.DeepCopy())
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return declare.Coded(codePublicCreate, fmt.Errorf("creating the public key's Secret %s: %w", p.public, err))
	}
	secret.OwnerReferences = nil // it is another's Secret
	patch := client.MergeFrom(&corev1.Secret{ObjectMeta: secret.ObjectMeta})
	if err := p.call.Client.Patch(ctx, secret, patch); err != nil {
		return declare.Coded(codePublicCreate, fmt.Errorf("adding to the public key's Secret %s: %w", p.public, err))
	}
	return nil
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
