package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/pki"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

// configure writes certificates, kubeconfigs, configuration files and the
// supervisor's list.
func (p *Program) configure(facts config.Facts) error {
	c := p.Cluster
	if err := pki.Cluster(c); err != nil {
		return err
	}
	keys := pki.Dir(c.PKI(""))
	files := map[string]string{c.Conf("audit.yaml"): config.Audit()}
	kubeconfigs := map[string]string{
		c.Kubeconfig(): "admin", c.Conf("controller-manager.kubeconfig"): "controller-manager", c.Conf("scheduler.kubeconfig"): "scheduler",
	}
	for _, n := range c.Nodes {
		kubeconfigs[n.Conf("kubelet.kubeconfig")] = "kubelet-" + n.Name
		kubeconfigs[n.Conf("proxy.kubeconfig")] = "proxy"
		files[n.Conf("containerd.toml")] = config.Containerd(n, facts)
		files[n.Conf("kubelet.yaml")] = config.Kubelet(c, n, facts)
		files[n.Conf("proxy.yaml")] = config.Proxy(n, facts)
		files[n.Conf("resolv.conf")] = config.ResolvConf(facts)
		files[filepath.Join(n.CNIConf(), "10-slipway.conflist")] = config.CNI(n, facts)
	}
	for file, leaf := range kubeconfigs {
		text, err := pki.Kubeconfig(keys, c.Server(), leaf)
		if err != nil {
			return err
		}
		files[file] = string(text)
	}
	for file, text := range files {
		if have, err := os.ReadFile(file); err == nil && string(have) == text {
			continue // kube-proxy ends whenever its file is written
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
	}
	return p.writeComponents(files)
}

// writeComponents writes the supervisor's list. Each component carries a hash of
// its program and of the files that it reads, so that a change restarts it.
func (p *Program) writeComponents(files map[string]string) error {
	components := config.Components(p.Cluster)
	for i, c := range components {
		h := sha256.New()
		fmt.Fprintf(h, "%q\n", c.Command)
		for _, arg := range c.Command {
			if target, err := os.Readlink(arg); err == nil {
				fmt.Fprintln(h, target)
			}
		}
		for _, file := range sortedKeys(files) {
			if reads(c, file) {
				fmt.Fprintf(h, "%s\n%s\n", file, files[file])
			}
		}
		components[i].Inputs = hex.EncodeToString(h.Sum(nil))[:16]
	}
	b, err := json.MarshalIndent(components, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the list of components: %w", err)
	}
	return os.WriteFile(p.Cluster.Conf("components.json"), b, 0o600)
}

// reads tells whether a component's command line names a file.
func reads(c process.Component, file string) bool {
	for _, arg := range c.Command {
		if len(arg) > len(file) && arg[len(arg)-len(file)-1:] == "="+file {
			return true
		}
	}
	return false
}
