package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/hack/cluster/internal/build"
	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/kube"
	"github.com/slipway-vm/slipway/hack/cluster/internal/tekton"
)

// appliedPath is the object that remembers what was applied.
const appliedPath = "/api/v1/namespaces/kube-system/configmaps/slipway-cluster"

// manifests renders the cluster's own objects: DNS and Tekton.
func (p *Program) manifests(ctx context.Context, made images, facts config.Facts) ([]byte, error) {
	module := filepath.Join(p.Components, "tekton")
	dir, err := build.ModuleDir(ctx, module, "github.com/tektoncd/pipeline")
	if err != nil {
		return nil, err
	}
	refs := tekton.Images{Programs: map[string]string{}, Shell: made["busybox"].Ref}
	for _, program := range tektonPrograms {
		refs.Programs[program] = made["tekton-"+program].Ref
	}
	version := dir[strings.LastIndex(dir, "@")+1:]
	objects, err := tekton.Objects(os.DirFS(filepath.Join(dir, "config")), version, refs)
	if err != nil {
		return nil, err
	}
	text := bytes.NewBufferString(config.DNS(made["coredns"].Ref, facts))
	for _, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("rendering Tekton's objects: %w", err)
		}
		text.WriteString("---\n")
		text.Write(b)
	}
	return text.Bytes(), nil
}

// applyOwn applies the cluster's own objects unless just these were applied before.
func (p *Program) applyOwn(ctx context.Context, client *kube.Client, made images, facts config.Facts) error {
	text, err := p.manifests(ctx, made, facts)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	var applied struct {
		Data map[string]string `json:"data"`
	}
	if err := client.Get(ctx, appliedPath, &applied); err != nil && !kube.NotFound(err) {
		return err
	}
	if applied.Data["manifests"] == digest {
		return nil
	}
	began := time.Now()
	if err := p.applyText(ctx, "the cluster's own objects", "manifests.yaml", string(text)); err != nil {
		return err
	}
	p.say("DNS and Tekton applied in %.1fs", time.Since(began).Seconds())
	return client.Apply(ctx, appliedPath, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "slipway-cluster", "namespace": "kube-system"},
		"data":     map[string]string{"manifests": digest},
	})
}

// applyFile applies a file of objects, called what in words, by server-side apply; kinds that
// the server does not serve yet are tried again.
func (p *Program) applyFile(ctx context.Context, what, file string) error {
	var failure string
	return p.await(ctx, what, patience, "kube-apiserver", func() string {
		cmd := exec.CommandContext(ctx, p.Cluster.Bin("kubectl"), "--kubeconfig="+p.Cluster.Kubeconfig(), "apply",
			"--server-side", "--force-conflicts", "--field-manager=slipway-cluster", "-f", file)
		out, err := cmd.CombinedOutput()
		failure = ""
		if err != nil {
			failure = lastLine(string(out))
		}
		return failure
	})
}

// dropLeases removes the leases of controllers that ended with the node, so that
// their successors need not wait for their expiry. Nodes' own leases stay.
func dropLeases(ctx context.Context, client *kube.Client) error {
	var leases kube.List[struct {
		Metadata kube.Metadata `json:"metadata"`
	}]
	const all = "/apis/coordination.k8s.io/v1/"
	if err := client.Get(ctx, all+"leases", &leases); err != nil {
		return err
	}
	for _, l := range leases.Items {
		if l.Metadata.Namespace == "kube-node-lease" || l.Metadata.Namespace == "kube-system" {
			continue
		}
		if err := client.Delete(ctx, all+"namespaces/"+l.Metadata.Namespace+"/leases/"+l.Metadata.Name); err != nil {
			return err
		}
	}
	return nil
}

// admitted asks for a task to be created, without keeping it: it passes through
// Tekton's webhooks.
func admitted(ctx context.Context, client *kube.Client) error {
	return client.Create(ctx, "/apis/tekton.dev/v1/namespaces/default/tasks?dryRun=All", map[string]any{
		"apiVersion": "tekton.dev/v1", "kind": "Task", "metadata": map[string]any{"name": "admission"},
		"spec": map[string]any{"steps": []map[string]any{{"name": "step", "image": "scratch", "command": []string{"/none"}}}},
	})
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
