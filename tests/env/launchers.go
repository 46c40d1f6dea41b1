package env

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// keptLog is how much of the end of a launcher's log is kept, in bytes.
const keptLog = 16 << 10

// launchers are the logs of the launcher pods of a namespace, kept for when the pods are gone: a log goes with its pod.
type launchers struct {
	mu   sync.Mutex
	logs map[types.UID]*launcherLog
	// following waits for those who read them.
	following sync.WaitGroup
}

type launcherLog struct {
	pod string
	mu  sync.Mutex
	end []byte
}

// FollowLaunchers reads the logs of the namespace's launcher pods along until stop is called, whatever becomes of ctx, so that
// a dump has them when the pods are gone.
func (c *Cluster) FollowLaunchers(ctx context.Context, namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	kept := &launchers{logs: map[types.UID]*launcherLog{}}
	c.launchers.Store(namespace, kept)
	kept.following.Go(func() {
		for ctx.Err() == nil { // a watch ends now and then
			if err := c.watchLaunchers(ctx, namespace, kept); err != nil {
				return // without them a dump has less to tell
			}
		}
	})
	return func() {
		cancel()
		kept.following.Wait()
		c.launchers.Delete(namespace)
	}
}

func (c *Cluster) watchLaunchers(ctx context.Context, namespace string, kept *launchers) error {
	pods, err := c.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.MatchingLabels{"kubevirt.io": "virt-launcher"})
	if err != nil {
		return fmt.Errorf("watching the launcher pods of %s: %w", namespace, err)
	}
	defer pods.Stop()
	defer context.AfterFunc(ctx, pods.Stop)()
	for event := range pods.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted && computeStarted(pod) {
			c.followLauncher(ctx, pod, kept)
		}
	}
	return nil
}

func computeStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == names.ComputeContainer && (s.State.Running != nil || s.State.Terminated != nil)
	})
}

// followLauncher reads a pod's log along, unless it was read before.
func (c *Cluster) followLauncher(ctx context.Context, pod *corev1.Pod, kept *launchers) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.logs[pod.UID] != nil {
		return
	}
	log := &launcherLog{pod: pod.Name}
	kept.logs[pod.UID] = log
	kept.following.Go(func() {
		stream, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: names.ComputeContainer, Follow: true}).Stream(ctx)
		if err != nil {
			_, _ = fmt.Fprintf(log, "(its log could not be read: %v)", err)
			return
		}
		defer func() { _ = stream.Close() }()
		_, _ = io.Copy(log, stream) // what was read before an error stays
	})
}

// Write keeps the end of what was written.
func (l *launcherLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = append(l.end, data...)
	if over := len(l.end) - keptLog; over > 0 {
		l.end = append(l.end[:0], l.end[over:]...)
	}
	return len(data), nil
}

// dumpGone prints the last lines of the launchers of a namespace whose pods are not among those there.
func (c *Cluster) dumpGone(out io.Writer, namespace string, there []corev1.Pod) {
	found, ok := c.launchers.Load(namespace)
	if !ok {
		return
	}
	kept := found.(*launchers)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	for uid, log := range kept.logs {
		if slices.ContainsFunc(there, func(pod corev1.Pod) bool { return pod.UID == uid }) {
			continue
		}
		log.mu.Lock()
		lines := strings.Split(strings.TrimSpace(string(log.end)), "\n")
		log.mu.Unlock()
		printLog(out, namespace, log.pod, names.ComputeContainer+", which is gone", strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
	}
}
