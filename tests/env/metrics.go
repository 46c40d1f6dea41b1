package env

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// metricsPath is where the API server serves what pods use.
const metricsPath = "/apis/metrics.k8s.io/v1beta1"

// MetricsServer starts the local cluster's metrics server, which is built first when it is not in
// the cache. An existing cluster must have one.
func (c *Cluster) MetricsServer(ctx context.Context, out io.Writer) error {
	if !c.Existing {
		return c.local(ctx, out, "metrics-up")
	}
	if _, err := c.Kube.RESTClient().Get().AbsPath(metricsPath).DoRaw(ctx); err != nil {
		return fmt.Errorf("looking for the cluster's metrics server: %w; install one", err)
	}
	return nil
}

// RemoveMetricsServer removes what MetricsServer started, also where it failed half way.
func (c *Cluster) RemoveMetricsServer(ctx context.Context, out io.Writer) error {
	if c.Existing {
		return nil
	}
	return c.local(ctx, out, "metrics-down")
}

// local runs a verb of the local cluster's program.
func (c *Cluster) local(ctx context.Context, out io.Writer, verb string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "-C", filepath.Join(c.Root, "hack/cluster"), ".", verb)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 10 * time.Second // what it started holds its output open
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s of the local cluster: %w", verb, err)
	}
	return nil
}

// MilliCPU returns how many thousandths of a processor each of the namespace's pods that the
// labels select used of late, by pod. A pod of which nothing is known yet is left out.
func (c *Cluster) MilliCPU(ctx context.Context, namespace, labels string) (map[string]int64, error) {
	data, err := c.Kube.RESTClient().Get().AbsPath(metricsPath, "namespaces", namespace, "pods").Param("labelSelector", labels).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking what pods use: %w", err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Containers []struct {
				Usage map[string]resource.Quantity `json:"usage"`
			} `json:"containers"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading what pods use: %w", err)
	}
	used := map[string]int64{}
	for _, pod := range list.Items {
		for _, container := range pod.Containers {
			cpu := container.Usage["cpu"]
			used[pod.Metadata.Name] += cpu.MilliValue()
		}
	}
	return used, nil
}
