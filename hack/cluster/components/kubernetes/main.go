// Command kubernetes is every Kubernetes component of the local cluster in one
// program. The component is the name that the program was called by (through a
// link), or else the first argument; the rest are the component's own flags.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps the first argument to the command that runs it.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, called := components[name]; !called && name != "etcd" {
		if len(args) == 0 {
			fmt.Fprintln(os.Stderr, "usage: kubernetes COMPONENT [FLAGS]; components: etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet")
			os.Exit(2)
		}
		name, args = args[0], args[1:]
	}
	os.Args = append([]string{name}, args...)
	if name == "etcd" {
		etcd.Main(os.Args)
		return
	}
	command, ok := components[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kubernetes: no component %q\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
