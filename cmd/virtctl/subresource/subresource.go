// Package subresource reaches the subresources of VirtualMachines and their instances: what is done
// with a machine, such as its start or its console, and not with the object that describes it.
package subresource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
)

const contentType = "Content-Type"

// Cluster is what is needed of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Config() (*rest.Config, error)
}

// API reaches the subresources in a namespace.
type API struct {
	// Namespace is where the objects are.
	Namespace string
	config    *rest.Config
	client    rest.Interface
}

// Of returns the API of the cluster, in its namespace.
func Of(cluster Cluster) (*API, error) {
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, err
	}
	config, err := cluster.Config()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &virtv1.SubresourceStorageGroupVersion
	config.ContentType = runtime.ContentTypeJSON
	// Errors alone are decoded: they are Status objects.
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster at %s: %w", config.Host, err)
	}
	return &API{Namespace: namespace, config: config, client: client}, nil
}

// Object is what has the subresources.
type Object struct {
	resource, name string
}

// Machine is the VirtualMachine of that name.
func Machine(name string) Object { return Object{resource: "virtualmachines", name: name} }

// Instance is the VirtualMachineInstance of that name.
func Instance(name string) Object { return Object{resource: "virtualmachineinstances", name: name} }

// KindOf returns what makes objects of the kind that the user's word names: Machine or Instance.
func KindOf(word string) (func(name string) Object, error) {
	switch strings.ToLower(word) {
	case "vm", "vms", "virtualmachine", "virtualmachines":
		return Machine, nil
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
		return Instance, nil
	}
	return nil, fmt.Errorf("unsupported resource type '%s'", word)
}

// Put asks for the verb of an object, with options, which may be nil.
func (a *API) Put(ctx context.Context, of Object, verb string, options any) error {
	request := a.request("PUT", of, verb)
	if options != nil {
		body, err := json.Marshal(options)
		if err != nil {
			return fmt.Errorf("encoding the options of %s: %w", verb, err)
		}
		request = request.SetHeader(contentType, runtime.ContentTypeJSON).Body(body)
	}
	return served(request.Do(ctx).Error())
}

// Get reads what is at path below an object, with the parameters of query.
func (a *API) Get(ctx context.Context, of Object, path string, query url.Values) ([]byte, error) {
	return raw(ctx, withQuery(a.request("GET", of, path), query))
}

// GetBy reads what is at path below an object, by options, which KubeVirt's API takes in the body.
func (a *API) GetBy(ctx context.Context, of Object, path string, options any) ([]byte, error) {
	body, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encoding the options of %s: %w", path, err)
	}
	return raw(ctx, a.request("GET", of, path).SetHeader(contentType, runtime.ContentTypeJSON).Body(body))
}

// PutNamespaced gives body, which is JSON, to a subresource of the namespace and returns the answer.
func (a *API) PutNamespaced(ctx context.Context, subresource string, body []byte) ([]byte, error) {
	request := a.client.Put().Namespace(a.Namespace).Resource(subresource)
	return raw(ctx, request.SetHeader(contentType, runtime.ContentTypeJSON).Body(body))
}

// GetGlobal reads a subresource of the whole cluster.
func (a *API) GetGlobal(ctx context.Context, subresource string) ([]byte, error) {
	return raw(ctx, a.client.Get().Resource(subresource))
}

func (a *API) request(method string, of Object, path string) *rest.Request {
	return a.client.Verb(method).Namespace(a.Namespace).Resource(of.resource).Name(of.name).SubResource(strings.Split(path, "/")...)
}

func withQuery(request *rest.Request, query url.Values) *rest.Request {
	for key, values := range query {
		for _, value := range values {
			request = request.Param(key, value)
		}
	}
	return request
}

func raw(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, served(err)
	}
	return result.Raw()
}

// served explains the answer of an API server that has no such API: it is no Status of ours.
func served(err error) error {
	var status *apierrors.StatusError
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return err
	}
	unexpected := func(cause metav1.StatusCause) bool { return cause.Type == metav1.CauseTypeUnexpectedServerResponse }
	if !slices.ContainsFunc(status.ErrStatus.Details.Causes, unexpected) {
		return err
	}
	return fmt.Errorf("this cluster does not serve %s: %w", virtv1.SubresourceStorageGroupVersion, err)
}

// Failed words err as KubeVirt's virtctl does, with prefix before it.
func Failed(prefix string, err error) error { return failure{prefix: prefix, err: err} }

type failure struct {
	prefix string
	err    error
}

func (f failure) Error() string { return f.prefix + f.err.Error() }

func (f failure) Unwrap() error { return f.err }
