// Package env is the world in which end-to-end tests, benchmarks and the demo run: a
// real cluster with Slipway installed by its own operator, guests to boot, a file
// server on the node, and a full account of what happened when something fails.
package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
)

// Cluster is a running Kubernetes.
type Cluster struct {
	Config *rest.Config
	Client client.WithWatch
	// Kube is for what the generic client does not do: logs.
	Kube *kubernetes.Clientset
	// Kubeconfig is the path of the file that names the cluster.
	Kubeconfig string
	// Existing says that somebody else runs the cluster: nothing of it is started or changed
	// outside the namespaces of the tests.
	Existing bool
	// Local is what the local cluster says of itself; zero for an existing one.
	Local Local
	// Root is the root of the checkout.
	Root string
	// launchers are by namespace what FollowLaunchers keeps.
	launchers *sync.Map
}

// Local is the status of the local cluster (hack/cluster).
type Local struct {
	Kubeconfig  string `json:"kubeconfig"`
	KubeletRoot string `json:"kubeletRoot"`
	PoolPath    string `json:"poolPath"`
	// PoolType is the pool's file system, "folder" when it has none of its own.
	PoolType string `json:"poolType"`
	NodeIP   string `json:"nodeIP"`
	Log      string `json:"log"`
	Running  bool   `json:"running"`
}

// Open connects to the cluster that the environment chooses: the local one, or with
// CLUSTER=existing the one that KUBECONFIG names.
func Open(ctx context.Context) (*Cluster, error) {
	root, err := checkout(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Root: root, launchers: &sync.Map{}, Existing: os.Getenv("CLUSTER") == "existing"}
	if c.Existing {
		c.Kubeconfig = os.Getenv("KUBECONFIG")
		if c.Kubeconfig == "" {
			return nil, errors.New("CLUSTER=existing needs KUBECONFIG, the file that names the cluster")
		}
	} else if err := c.readLocal(ctx); err != nil {
		return nil, err
	}
	return c, c.connect()
}

func (c *Cluster) readLocal(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "run", "-C", filepath.Join(c.Root, "hack/cluster"), ".", "status", "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("asking for the local cluster's status: %w", err)
	}
	if err := json.Unmarshal(out, &c.Local); err != nil {
		return fmt.Errorf("reading the local cluster's status: %w", err)
	}
	if !c.Local.Running {
		return errors.New("the local cluster does not run; start it with: make cluster-up")
	}
	c.Kubeconfig = c.Local.Kubeconfig
	return nil
}

func (c *Cluster) connect() error {
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("reading %s: %w", c.Kubeconfig, err)
	}
	c.Config.QPS, c.Config.Burst = 100, 200
	c.Config.Wrap(func(way http.RoundTripper) http.RoundTripper { return patient{way} })
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme.New()}); err != nil {
		return fmt.Errorf("connecting to the cluster of %s: %w", c.Kubeconfig, err)
	}
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return fmt.Errorf("connecting to the cluster of %s: %w", c.Kubeconfig, err)
	}
	return nil
}

// checkout returns the root of the module that the program runs in.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("finding the checkout: run inside it")
	}
	return filepath.Dir(mod), nil
}
