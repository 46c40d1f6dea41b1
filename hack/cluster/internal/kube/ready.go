package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Namespaces are those of what the cluster itself runs.
var Namespaces = []string{"kube-system", "tekton-pipelines", "tekton-pipelines-resolvers"}

// WorkloadsReady returns what is still missing of the cluster's own workloads,
// "" when every one is available and each of its pods answers its readiness
// probe now. After a restart of the node the API's word alone may be old.
func (c *Client) WorkloadsReady(ctx context.Context) (string, error) {
	var waiting []string
	for _, ns := range Namespaces {
		var deployments List[Deployment]
		if err := c.Get(ctx, "/apis/apps/v1/namespaces/"+ns+"/deployments", &deployments); err != nil {
			return "", err
		}
		if len(deployments.Items) == 0 {
			return "deployments in " + ns, nil
		}
		for _, d := range deployments.Items {
			if !d.Available() {
				waiting = append(waiting, d.Metadata.Name)
			}
		}
		var pods List[Pod]
		if err := c.Get(ctx, "/api/v1/namespaces/"+ns+"/pods", &pods); err != nil {
			return "", err
		}
		for _, p := range pods.Items {
			if why := p.notAnswering(ctx); why != "" {
				waiting = append(waiting, p.Metadata.Name+" ("+why+")")
			}
		}
	}
	return strings.Join(waiting, ", "), nil
}

// notAnswering says why a pod is not ready, "" when it is.
func (p Pod) notAnswering(ctx context.Context) string {
	if p.Metadata.DeletionTimestamp != nil || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		return ""
	}
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	if p.Status.PodIP == "" {
		return "no address"
	}
	for _, container := range p.Spec.Containers {
		url := container.probeURL(p.Status.PodIP)
		if url == "" {
			continue
		}
		if err := answers(ctx, url); err != nil {
			return "readiness probe fails"
		}
	}
	return ""
}

// probeURL is the URL of a container's HTTP readiness probe.
func (c Container) probeURL(ip string) string {
	if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil {
		return ""
	}
	get := c.ReadinessProbe.HTTPGet
	port := 0
	switch v := get.Port.(type) {
	case float64:
		port = int(v)
	case string:
		for _, p := range c.Ports {
			if p.Name == v {
				port = p.ContainerPort
			}
		}
	}
	if port == 0 {
		return ""
	}
	return "http://" + net.JoinHostPort(ip, strconv.Itoa(port)) + get.Path
}

func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	_ = response.Body.Close()
	if response.StatusCode >= 400 {
		return fmt.Errorf("asking %s: status %d", url, response.StatusCode)
	}
	return nil
}
