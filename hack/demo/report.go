package main

import (
	"fmt"
	"time"
)

// report prints the table of steps and what to type next.
func (d *demo) report() {
	fmt.Fprintf(d.out, "\n\033[1m%-26s %8s\033[0m\n", "step", "time")
	for _, t := range d.times {
		fmt.Fprintf(d.out, "%-26s %8s\n", t.name, t.took.Round(100*time.Millisecond))
	}
	kubectl := "kubectl"
	if !d.cluster.Existing {
		kubectl = d.cluster.Root + "/.cluster/bin/kubectl"
	}
	fmt.Fprintf(d.out, `
The golden image %[1]q is published, and VM %[2]q runs on its own copy of it. Go on with:

  export KUBECONFIG=%[3]s
  %[4]s get vm,vmi,dv,datasource -n %[5]s
  ssh -i %[6]s -o StrictHostKeyChecking=no %[7]s@$(%[4]s get vmi %[2]s -n %[5]s -o jsonpath='{.status.interfaces[0].ipAddress}')
  %[4]s get pipelinerun,taskrun -n %[5]s
  make demo IMAGE_URL=https://…   # the same with your own disk: qcow2 or raw, also gz, xz or zstd
  make cluster-down               # stop the cluster; make cluster-up brings it back
`, imageName, vmName, d.cluster.Kubeconfig, kubectl, namespace, d.keyFile, d.user)
}
