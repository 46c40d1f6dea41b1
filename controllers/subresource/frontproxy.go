package subresource

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// The ConfigMap in which the API server says how it calls aggregated ones.
const (
	proxyConfigMap   = "extension-apiserver-authentication"
	keyProxyCA       = "requestheader-client-ca-file"
	keyProxyNames    = "requestheader-allowed-names"
	keyUserHeaders   = "requestheader-username-headers"
	keyUIDHeaders    = "requestheader-uid-headers"
	keyGroupHeaders  = "requestheader-group-headers"
	keyExtraPrefixes = "requestheader-extra-headers-prefix"
)

// errNoFrontProxy is said where the cluster was never told to aggregate.
var errNoFrontProxy = errors.New("the API server has no front proxy configured, so nobody can be let in; " +
	"start kube-apiserver with --requestheader-client-ca-file, --proxy-client-cert-file and --proxy-client-key-file")

// frontProxy knows the API server when it hands a request on, by its certificate, and learns
// from it who asks.
type frontProxy struct {
	configMaps rest.Interface
	log        logr.Logger

	trusted atomic.Pointer[trust] // set by follow; nil until the ConfigMap was seen
}

// trust is what the ConfigMap says.
type trust struct {
	data map[string]string
	// err says why nobody is trusted, nil when somebody is.
	err   error
	roots *x509.CertPool
	// names are the certificates' common names that are let in; none means any.
	names []string
	// Headers that say who asks, and prefixes of those that say more of him.
	users, uids, groups, extras []string
}

// NeedLeaderElection says that every replica follows the configuration.
func (p *frontProxy) NeedLeaderElection() bool { return false }

// Start follows the ConfigMap until ctx ends. That it is missing or may not be read keeps
// nothing else from running.
func (p *frontProxy) Start(ctx context.Context) error {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, proxyConfigMap)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(p.configMaps, "configmaps", metav1.NamespaceSystem, one),
		ObjectType:    &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    p.follow,
			UpdateFunc: func(_, object any) { p.follow(object) },
			DeleteFunc: func(any) { p.follow(&corev1.ConfigMap{}) },
		},
	})
	go func() {
		select {
		case <-ctx.Done():
		case <-informer.HasSyncedChecker().Done():
			if none := (&trust{err: errNoFrontProxy}); p.trusted.CompareAndSwap(nil, none) {
				p.tell(none)
			}
		}
	}()
	informer.RunWithContext(ctx)
	return nil
}

// follow takes what a ConfigMap says from now on.
func (p *frontProxy) follow(object any) {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	if before := p.trusted.Load(); before != nil && maps.Equal(before.data, configMap.Data) {
		return
	}
	read := trustOf(configMap.Data)
	read.data = configMap.Data
	p.trusted.Store(read)
	p.tell(read)
}

// tell logs who is trusted.
func (p *frontProxy) tell(t *trust) {
	if t.err != nil {
		p.log.Error(t.err, "nobody can use the subresources of virtual machines: start, stop, console and the like answer 401",
			"ConfigMap", metav1.NamespaceSystem+"/"+proxyConfigMap)
		return
	}
	p.log.Info("trusting the API server's front proxy", "names", t.names, "userHeaders", t.users)
}

// trustOf reads the data of the ConfigMap.
func trustOf(data map[string]string) *trust {
	if data[keyProxyCA] == "" {
		return &trust{err: errNoFrontProxy}
	}
	t := &trust{roots: x509.NewCertPool()}
	if !t.roots.AppendCertsFromPEM([]byte(data[keyProxyCA])) {
		return &trust{err: fmt.Errorf("reading the front proxy's authorities: %s holds no certificate", keyProxyCA)}
	}
	for key, list := range map[string]*[]string{
		keyProxyNames: &t.names, keyUserHeaders: &t.users, keyUIDHeaders: &t.uids,
		keyGroupHeaders: &t.groups, keyExtraPrefixes: &t.extras,
	} {
		if data[key] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data[key]), list); err != nil {
			return &trust{err: fmt.Errorf("reading %s of the front proxy's configuration: %w", key, err)}
		}
	}
	if len(t.users) == 0 {
		return &trust{err: fmt.Errorf("reading the front proxy's configuration: %s names no header", keyUserHeaders)}
	}
	return t
}

// identify says who asks. The headers that say it are taken off r.
func (p *frontProxy) identify(r *http.Request) (authenticationv1.UserInfo, error) {
	t := p.trusted.Load()
	if t == nil {
		return authenticationv1.UserInfo{}, refuse(apierrors.NewServiceUnavailable("the configuration of the front proxy has not been read yet"))
	}
	if err := t.verify(r); err != nil {
		return authenticationv1.UserInfo{}, refuse(apierrors.NewUnauthorized("request is not authenticated: " + err.Error()))
	}
	user := t.user(r.Header)
	if user.Username == "" {
		return authenticationv1.UserInfo{}, refuse(apierrors.NewUnauthorized("a valid user header is required for authorization"))
	}
	return user, nil
}

// verify says why r does not come from the front proxy.
func (t *trust) verify(r *http.Request) error {
	if t.err != nil {
		return t.err
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errors.New("it comes without the front proxy's certificate; ask kube-apiserver, not virt-api")
	}
	presented := r.TLS.PeerCertificates
	intermediates := x509.NewCertPool()
	for _, cert := range presented[1:] {
		intermediates.AddCert(cert)
	}
	_, err := presented[0].Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("verifying the certificate: %w", err)
	}
	if name := presented[0].Subject.CommonName; len(t.names) > 0 && !slices.Contains(t.names, name) {
		return fmt.Errorf("certificate %q is not among the names of front proxies", name)
	}
	return nil
}

// user reads who asks from header, and takes it off.
func (t *trust) user(header http.Header) authenticationv1.UserInfo {
	user := authenticationv1.UserInfo{
		Username: first(header, t.users), UID: first(header, t.uids), Groups: all(header, t.groups),
		Extra: map[string]authenticationv1.ExtraValue{},
	}
	for _, prefix := range t.extras {
		for name, values := range header {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				key := extraKey(name[len(prefix):])
				user.Extra[key] = append(user.Extra[key], values...)
				header.Del(name)
			}
		}
	}
	for _, name := range slices.Concat(t.users, t.uids, t.groups) {
		header.Del(name)
	}
	return user
}

func first(header http.Header, names []string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

func all(header http.Header, names []string) []string {
	for _, name := range names {
		if values := header.Values(name); len(values) > 0 {
			return slices.Clone(values)
		}
	}
	return nil
}

// extraKey is what a header's name says after its prefix: percent-encoded, in lower case.
func extraKey(name string) string {
	lower := strings.ToLower(name)
	if key, err := url.PathUnescape(lower); err == nil {
		return key
	}
	return lower
}
