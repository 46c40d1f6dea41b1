package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/cluster/internal/build"
	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/image"
	"github.com/slipway-vm/slipway/hack/cluster/internal/kube"
	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// MetricsUp starts the metrics server, which it builds first when the cache lacks it, and waits
// until the API server reaches it.
func (p *Program) MetricsUp(ctx context.Context) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	server, err := p.metricsImage(ctx)
	if err != nil {
		return err
	}
	if err := p.Load(ctx, []string{server.File}); err != nil {
		return err
	}
	client, err := kube.New(p.Cluster)
	if err != nil {
		return err
	}
	if err := p.applyText(ctx, "the metrics server's objects", "metrics-server.yaml", config.MetricsServer(server.Ref)); err != nil {
		return err
	}
	err = p.await(ctx, "the metrics server", patience, "kubelet", func() string { return metricsMissing(ctx, client) })
	if err != nil {
		return err
	}
	if err := p.applyText(ctx, "its group", "metrics-api.yaml", config.MetricsAPI()); err != nil {
		return err
	}
	return p.await(ctx, "metrics.k8s.io", patience, "kube-apiserver", func() string {
		var group kube.APIService
		if err := client.Get(ctx, apiServicePath, &group); err != nil {
			return err.Error()
		}
		return group.Unavailable()
	})
}

// MetricsDown removes the metrics server, its group first, and waits until it is gone. Where
// there is none it does nothing.
func (p *Program) MetricsDown(ctx context.Context) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	client, err := kube.New(p.Cluster)
	if err != nil {
		return err
	}
	if err := client.Delete(ctx, apiServicePath); err != nil {
		return fmt.Errorf("removing metrics.k8s.io: %w", err)
	}
	file, err := p.writeConf("metrics-server.yaml", config.MetricsServer("none"))
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, p.Cluster.Bin("kubectl"), "--kubeconfig="+p.Cluster.Kubeconfig(),
		"delete", "--ignore-not-found", "--timeout=2m", "-f", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("removing the metrics server: %w: %s", err, lastLine(string(out)))
	}
	p.say("the metrics server is gone")
	return nil
}

// apiServicePath is the object by which the API server asks the metrics server.
const apiServicePath = "/apis/apiregistration.k8s.io/v1/apiservices/" + layout.MetricsAPI

// metricsImage builds the metrics server and its image.
func (p *Program) metricsImage(ctx context.Context) (archive, error) {
	dir, err := build.MetricsServer(p.Components).Build(ctx, p.Cache, p.say)
	if err != nil {
		return archive{}, err
	}
	const program = "/metrics-server"
	return p.makeImage("metrics-server", filepath.Base(dir), image.Image{
		Files:      []image.File{{Path: program, Source: filepath.Join(dir, program), Mode: 0o755}},
		Entrypoint: []string{program},
		User:       nonroot,
	})
}

// metricsMissing is why the metrics server does not answer yet, "" when it does.
func metricsMissing(ctx context.Context, client *kube.Client) string {
	var deployment kube.Deployment
	if err := client.Get(ctx, "/apis/apps/v1/namespaces/"+layout.MetricsNamespace+"/deployments/metrics-server", &deployment); err != nil {
		return err.Error()
	}
	if !deployment.Available() {
		return "it has not read the kubelets' figures yet"
	}
	return ""
}

// applyText applies objects, called what in words, that are kept in a file of the configuration.
func (p *Program) applyText(ctx context.Context, what, name, text string) error {
	file, err := p.writeConf(name, text)
	if err != nil {
		return err
	}
	return p.applyFile(ctx, what, file)
}

// writeConf writes a file of the configuration and returns its path.
func (p *Program) writeConf(name, text string) (string, error) {
	file := p.Cluster.Conf(name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return file, nil
}
