package env

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// logLines is how much of the end of each container's log a dump shows.
const logLines = 60

// dumped are the kinds whose conditions a dump shows.
var dumped = []schema.GroupVersionKind{
	{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"},
	{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstanceReplicaSet"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "pool.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachinePool"},
	{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
	{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataVolume"},
	{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataSource"},
	{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"},
	{Group: "tekton.dev", Version: "v1", Kind: "TaskRun"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "Pod"},
}

// Dump prints the phases, conditions, events and logs of a namespace and the logs of Slipway's
// own components; with FollowLaunchers also those of launcher pods that are gone.
func (c *Cluster) Dump(ctx context.Context, out io.Writer, namespace string) {
	fmt.Fprintf(out, "\n=== what is in namespace %s ===\n", namespace)
	if namespace != "" {
		for _, kind := range dumped {
			c.dumpKind(ctx, out, namespace, kind)
		}
		c.dumpEvents(ctx, out, namespace)
		c.dumpLogs(ctx, out, namespace)
	}
	if namespace != names.InstallNamespace {
		c.dumpLogs(ctx, out, names.InstallNamespace)
	}
	fmt.Fprintln(out, "=== end ===")
}

func (c *Cluster) dumpKind(ctx context.Context, out io.Writer, namespace string, kind schema.GroupVersionKind) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		fmt.Fprintf(out, "%s: %v\n", kind.Kind, err)
		return
	}
	for _, item := range list.Items {
		phase, _, _ := unstructured.NestedString(item.Object, "status", "phase")
		printable, _, _ := unstructured.NestedString(item.Object, "status", "printableStatus")
		fmt.Fprintf(out, "%s %s: %s%s\n", kind.Kind, item.GetName(), phase, printable)
		conditions, _, _ := unstructured.NestedSlice(item.Object, "status", "conditions")
		for _, condition := range conditions {
			if m, ok := condition.(map[string]any); ok {
				fmt.Fprintf(out, "    %v=%v %v: %v\n", m["type"], m["status"], m["reason"], m["message"])
			}
		}
	}
}

func (c *Cluster) dumpEvents(ctx context.Context, out io.Writer, namespace string) {
	var events corev1.EventList
	if err := c.Client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		fmt.Fprintf(out, "events: %v\n", err)
		return
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, e := range events.Items {
		fmt.Fprintf(out, "%s %-7s %s %s/%s: %s\n", e.CreationTimestamp.Format("15:04:05"), e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
	}
}

func (c *Cluster) dumpLogs(ctx context.Context, out io.Writer, namespace string) {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		fmt.Fprintf(out, "pods: %v\n", err)
		return
	}
	for _, pod := range pods.Items {
		for _, container := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
			log, err := c.Kube.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
				Container: container.Name, TailLines: ptr.To[int64](logLines),
			}).DoRaw(ctx)
			if err != nil {
				log = []byte(err.Error())
			}
			printLog(out, namespace, pod.Name, container.Name, string(log))
		}
	}
	c.dumpGone(out, namespace, pods.Items)
}

// What of the launchers of a VM is in the error of a wait for it: lines of each log, and bytes.
const (
	lastLines = 3
	lastBytes = 400
)

// lastWords are the last lines of the logs of the launchers of a VM or its instance, which have what its guest's console said, for an
// error: it is seen where a dump is not. It is empty for other objects.
func (c *Cluster) lastWords(ctx context.Context, obj client.Object) string {
	switch obj.(type) {
	case *virtv1.VirtualMachine, *virtv1.VirtualMachineInstance:
	default:
		return ""
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(obj.GetNamespace()), client.MatchingLabels{names.LabelVMName: obj.GetName()}); err != nil {
		return fmt.Sprintf(" (its launchers: %v)", err)
	}
	var out strings.Builder
	for _, pod := range pods.Items {
		log, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
			Container: names.ComputeContainer, TailLines: new(int64(lastLines)),
		}).DoRaw(ctx)
		if err != nil {
			log = []byte(err.Error())
		}
		fmt.Fprintf(&out, " (%s, %s, said last: %q)", pod.Name, pod.Status.Phase, log[max(0, len(log)-lastBytes):])
	}
	return out.String()
}

func printLog(out io.Writer, namespace, pod, container, log string) {
	fmt.Fprintf(out, "--- log of %s/%s %s\n    %s\n", namespace, pod, container, strings.ReplaceAll(strings.TrimSpace(log), "\n", "\n    "))
}

// Log returns the whole log of a container.
func (c *Cluster) Log(ctx context.Context, namespace, pod, container string) (string, error) {
	log, err := c.Kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of %s/%s %s: %w", namespace, pod, container, err)
	}
	return string(log), nil
}
