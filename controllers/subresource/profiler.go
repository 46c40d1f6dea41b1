package subresource

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	among "k8s.io/apimachinery/pkg/selection"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/profiler"
)

// What is asked of the cluster profiler, as roles name it.
const (
	startProfiler = "start-cluster-profiler"
	stopProfiler  = "stop-cluster-profiler"
	dumpProfiler  = "dump-cluster-profiler"
)

// collectionVerb is what the API server takes a GET for that names no object.
const collectionVerb = "list"

const (
	// defaultPage and mostPerPage are of how many pods profiles are collected at a time; the field's.
	defaultPage, mostPerPage = 10, 20
	// mostProfiles bounds what is collected of all pods of a page, in bytes as pods send it.
	mostProfiles = 48 << 20
	// mostOfPod bounds what one pod sends: its profiles in base64, with their names.
	mostOfPod = profiler.MostBytes/3*4 + 64<<10
	// maxProfilerRequest bounds what a client sends.
	maxProfilerRequest = 64 << 10
	// componentTimeout bounds what is asked of one pod.
	componentTimeout = 10 * time.Second
	// askedAtOnce is of how many pods something is asked at a time; dumpedAtOnce when each may send much.
	askedAtOnce, dumpedAtOnce = 8, 2
	// clientLifetime is how long the certificate is good that virt-api shows to components; it is made for one request.
	clientLifetime = 5 * time.Minute
)

// haveProfilers are those that have a profiler, by their label.
var haveProfilers = []string{"virt-api", "virt-controller", "virt-handler", "virt-operator"}

// profiling answers who may list resource, while the profiler is on; what says what he wants.
func profiling(resource, what string, serve answer) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		user, err := s.proxy.identify(r)
		if err != nil {
			return err
		}
		asked := &authorizationv1.ResourceAttributes{
			Group: virtv1.SubresourceGroupName, Version: r.PathValue("version"), Resource: resource, Verb: collectionVerb,
		}
		if err := s.review(r, user, asked); err != nil {
			return err
		}
		kubevirts := &virtv1.KubeVirtList{}
		if err := s.live.List(r.Context(), kubevirts); err != nil {
			return fmt.Errorf("reading the KubeVirt object: %w", err)
		}
		if len(kubevirts.Items) == 0 || !featuregate.Profiler(&kubevirts.Items[0]) {
			gate := schema.GroupResource{Group: virtv1.SubresourceGroupName, Resource: resource}
			refused := apierrors.NewForbidden(gate, "", nil)
			refused.ErrStatus.Message = profiler.Off(what)
			return refuse(refused)
		}
		log.FromContext(r.Context()).Info("Asking the components", "reason", what, "user", user.Username)
		return serve(s, w, r)
	}
}

// inComponents asks the profiler of every component's pod for path.
func inComponents(path string) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		pods, _, err := s.componentPods(r.Context(), labels.Everything(), client.InNamespace(s.options.Namespace))
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			return errors.New("no component pods found that are ready")
		}
		err = s.askComponents(r.Context(), pods, path, func(_ string, answer io.Reader) error {
			_, err := io.Copy(io.Discard, io.LimitReader(answer, mostOfPod))
			return err //nolint:wrapcheck // the caller names the pod
		})
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
}

// dumpComponents answers with the profiles of some pods, and with what to continue with. One client is served at a time: profiles are
// kept until all of a page are there.
func (s *Server) dumpComponents(w http.ResponseWriter, r *http.Request) error {
	request, selector, err := readProfilerRequest(w, r)
	if err != nil {
		return err
	}
	select {
	case s.dumping <- struct{}{}:
		defer func() { <-s.dumping }()
	case <-r.Context().Done():
		return fmt.Errorf("waiting for another dump: %w", r.Context().Err())
	}
	pods, next, err := s.pageOfPods(r.Context(), request, selector)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	results := virtv1.ClusterProfilerResults{ComponentResults: map[string]virtv1.ProfilerResult{}, Continue: next}
	var mu sync.Mutex
	room := int64(mostProfiles)
	err = s.askComponents(r.Context(), pods, profiler.DumpPath, func(pod string, answer io.Reader) error {
		content, err := io.ReadAll(io.LimitReader(answer, mostOfPod+1))
		if err != nil {
			return err //nolint:wrapcheck // the caller names the pod
		}
		if len(content) > mostOfPod {
			return fmt.Errorf("it sends more than %d bytes", mostOfPod)
		}
		mu.Lock()
		defer mu.Unlock()
		if room -= int64(len(content)); room < 0 {
			return fmt.Errorf("the profiles of all pods are more than %d bytes; ask for fewer with pageSize", mostProfiles)
		}
		result := virtv1.ProfilerResult{}
		if err := json.Unmarshal(content, &result); err != nil {
			return fmt.Errorf("reading its profiles: %w", err)
		}
		results.ComponentResults[pod] = result
		return nil
	})
	if err != nil {
		return err
	}
	write(w, r, http.StatusOK, results)
	return nil
}

// readProfilerRequest reads of which pods a client wants profiles; of all when it sends nothing.
func readProfilerRequest(w http.ResponseWriter, r *http.Request) (virtv1.ClusterProfilerRequest, labels.Selector, error) {
	request := virtv1.ClusterProfilerRequest{}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxProfilerRequest))
	if err := decoder.Decode(&request); err != nil && !errors.Is(err, io.EOF) {
		return request, nil, badRequest("failed to parse cluster profiler request: %v", err)
	}
	selector, err := labels.Parse(request.LabelSelector)
	if err != nil {
		return request, nil, badRequest("labelSelector: %v; write it as kubectl takes it, such as kubevirt.io=virt-handler", err)
	}
	switch {
	case request.PageSize <= 0:
		request.PageSize = defaultPage
	case request.PageSize > mostPerPage:
		request.PageSize = mostPerPage
	}
	return request, selector, nil
}

// pageOfPods are the next pods that are ready, and what to continue with, if there may be more.
func (s *Server) pageOfPods(ctx context.Context, request virtv1.ClusterProfilerRequest, selector labels.Selector) ([]corev1.Pod, string, error) {
	next := request.Continue
	for {
		var pods []corev1.Pod
		var err error
		pods, next, err = s.componentPods(ctx, selector, client.InNamespace(s.options.Namespace), client.Limit(request.PageSize), client.Continue(next))
		if err != nil || len(pods) > 0 || next == "" {
			return pods, next, err
		}
	}
}

// componentPods lists pods of components that selector matches and that are ready, and what to continue with.
func (s *Server) componentPods(ctx context.Context, selector labels.Selector, options ...client.ListOption) ([]corev1.Pod, string, error) {
	ours, err := labels.NewRequirement(virtv1.AppLabel, among.In, haveProfilers)
	if err != nil {
		return nil, "", fmt.Errorf("selecting the components: %w", err)
	}
	list := &corev1.PodList{}
	err = s.live.List(ctx, list, append(options, client.MatchingLabelsSelector{Selector: selector.Add(*ours)})...)
	switch {
	case apierrors.IsBadRequest(err) || apierrors.IsResourceExpired(err):
		return nil, "", badRequest("looking up component pods: %v; ask anew without continue", err)
	case err != nil:
		return nil, "", fmt.Errorf("looking up component pods: %w", err)
	}
	var ready []corev1.Pod
	for _, pod := range list.Items {
		if isReady(&pod) {
			ready = append(ready, pod)
		}
	}
	return ready, list.Continue, nil
}

func isReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// askComponents asks the profilers of pods for path, a few at a time, and has read take each answer. What failed of any is told together,
// after all were asked.
func (s *Server) askComponents(ctx context.Context, pods []corev1.Pod, path string, read func(pod string, answer io.Reader) error) error {
	transport, err := s.componentTransport(ctx)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	asking := &http.Client{Transport: transport, Timeout: componentTimeout}
	failed := make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	if path == profiler.DumpPath {
		group.SetLimit(dumpedAtOnce)
	}
	for i := range pods {
		group.Go(func() error {
			if err := askComponent(ctx, asking, &pods[i], path, read); err != nil {
				failed[i] = fmt.Errorf("asking pod %s for %s: %w", pods[i].Name, strings.TrimPrefix(path, "/"), err)
			}
			return nil
		})
	}
	_ = group.Wait() // each says in its own place what failed
	return errors.Join(failed...)
}

func askComponent(ctx context.Context, asking *http.Client, pod *corev1.Pod, path string, read func(pod string, answer io.Reader) error) error {
	port := metricsPort(pod)
	if port == 0 {
		return fmt.Errorf("no port of it is named %s", profiler.PortName)
	}
	url := "https://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := asking.Do(request)
	if err != nil {
		return err //nolint:wrapcheck // it names what was asked
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		const longest = 1 << 10
		said, _ := io.ReadAll(io.LimitReader(response.Body, longest))
		return fmt.Errorf("it answers %s: %s", response.Status, strings.TrimSpace(string(said)))
	}
	return read(pod.Name, response.Body)
}

// metricsPort is where pod serves its metrics, and with them its profiler; 0 for nowhere.
func metricsPort(pod *corev1.Pod) int {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == profiler.PortName {
				return int(port.ContainerPort)
			}
		}
	}
	return 0
}

// componentTransport proves to components that virt-api asks, by a certificate of its own authority that is made now. Components serve
// with certificates that they make for themselves, which nobody knows: nothing secret is sent to them.
func (s *Server) componentTransport(ctx context.Context) (*http.Transport, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace, Name: s.options.Certificates}}
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return nil, fmt.Errorf("reading the Secret of the own certificates: %w", err)
	}
	own, err := certs.IssueClient(secret.Data, profiler.ClientName, clientLifetime, time.Now())
	if err != nil {
		return nil, fmt.Errorf("proving to components who asks: %w", err)
	}
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: componentTimeout}).DialContext,
		TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13,
			InsecureSkipVerify: true, //nolint:gosec // as above; what is answered is bounded
		},
	}, nil
}
