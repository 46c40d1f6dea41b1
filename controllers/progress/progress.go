// Package progress hears from the pods that fill disks how far they are. Each tells of itself, over a stream that is held for as
// long as somebody follows the pod.
package progress

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Port is the name of the port on which a pod tells of its progress.
const Port = "progress"

// Every is how often the progress of a pod is reported at the most.
const Every = 10 * time.Second

// Serve lets a container of /slipway tell of its progress whoever knows the token.
func Serve(container *corev1.Container, token string) {
	container.Args = append(container.Args, fmt.Sprintf("--progress-address=:%d", transfer.ProgressPort))
	container.Env = append(container.Env, corev1.EnvVar{Name: transfer.EnvToken, Value: token})
	container.Ports = append(container.Ports, corev1.ContainerPort{Name: Port, ContainerPort: transfer.ProgressPort, Protocol: corev1.ProtocolTCP})
}

// Listeners hold one stream to each pod that is followed; pods push their progress.
type Listeners struct {
	report func(ctx context.Context, owner types.NamespacedName)
	start  chan *listener

	mu     sync.Mutex
	active map[types.NamespacedName][]*listener
}

// listener follows one pod.
type listener struct {
	owner   types.NamespacedName
	pod     types.UID
	address string
	token   string
	ended   chan struct{}
	once    sync.Once

	mu     sync.Mutex
	latest transfer.Progress
	told   bool // whether the pod has said something, or could not be asked
}

// set notes what the pod says, and returns what it said before.
func (l *listener) set(progress transfer.Progress) (before transfer.Progress, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, first = l.latest, !l.told
	l.latest, l.told = progress, true
	return before, first
}

// New returns listeners that follow nobody yet. They call report when there is news of an owner's pod, once in Every at the most but
// for what a pod says first, that it begins anew, and that what came is of no use.
func New(report func(ctx context.Context, owner types.NamespacedName)) *Listeners {
	return &Listeners{report: report, start: make(chan *listener, 64), active: map[types.NamespacedName][]*listener{}}
}

// Start runs the streams until ctx ends. The manager calls it.
func (l *Listeners) Start(ctx context.Context) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-l.start:
			streams.Go(func() { l.run(ctx, one) })
		}
	}
}

// Follow listens for owner to the pods, which run, and to no other any more. It wants them with their environment, where the
// password of their progress is. One that tells nobody of its progress is left out.
func (l *Listeners) Follow(owner types.NamespacedName, pods ...*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var kept []*listener
	for _, one := range l.active[owner] {
		if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == one.pod }) {
			kept = append(kept, one)
		} else {
			one.end()
		}
	}
	for _, pod := range pods {
		port, tells := portOf(pod)
		if !tells || slices.ContainsFunc(kept, func(one *listener) bool { return one.pod == pod.UID }) {
			continue
		}
		one := &listener{
			owner: owner, pod: pod.UID, ended: make(chan struct{}), token: tokenOf(pod),
			address: "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)) + transfer.ProgressPath,
		}
		select {
		case l.start <- one:
			kept = append(kept, one)
		default: // more starts at once than anyone reads; the next pass tries again
		}
	}
	if l.active[owner] = kept; len(kept) == 0 {
		delete(l.active, owner)
	}
}

// Stop ends the listening for owner.
func (l *Listeners) Stop(owner types.NamespacedName) { l.Follow(owner) }

// Follows reports whether pod is listened to for owner.
func (l *Listeners) Follows(owner types.NamespacedName, pod types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.active[owner], func(one *listener) bool { return one.pod == pod })
}

// Latest is what owner's pod said last; zero when it has said nothing. told is false while it was not asked yet.
func (l *Listeners) Latest(owner types.NamespacedName, pod *corev1.Pod) (progress transfer.Progress, told bool) {
	if pod == nil {
		return transfer.Progress{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.active[owner] {
		if one.pod == pod.UID {
			one.mu.Lock()
			defer one.mu.Unlock()
			return one.latest, one.told
		}
	}
	return transfer.Progress{}, false
}

func (l *listener) end() { l.once.Do(func() { close(l.ended) }) }

// run keeps a stream to the pod until it is stopped. One that was restarted is found again.
func (l *Listeners) run(ctx context.Context, one *listener) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-one.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	logger := log.FromContext(ctx).WithValues("owner", one.owner.String())
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		err := l.stream(ctx, one)
		if ctx.Err() != nil {
			return
		}
		if _, first := one.set(l.said(one)); first {
			l.report(ctx, one.owner)
		}
		logger.V(1).Info("Listening to the pod again", "pause", pause, "cause", fmt.Sprint(err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// said is what the pod of one said last.
func (l *Listeners) said(one *listener) transfer.Progress {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.latest
}

// stream reads lines until the pod ends them, and reports at most once in Every; at once what it says first, that it begins
// anew, and that what came is of no use.
func (l *Listeners) stream(ctx context.Context, one *listener) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, one.address, nil)
	if err != nil {
		return fmt.Errorf("asking for the progress: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+one.token)
	response, err := direct.Do(request)
	if err != nil {
		return fmt.Errorf("asking for the progress: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for the progress: the pod answers %s", response.Status)
	}
	var reported time.Time
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		var progress transfer.Progress
		if err := json.Unmarshal(lines.Bytes(), &progress); err != nil {
			return fmt.Errorf("reading the progress: %w", err)
		}
		before, first := one.set(progress)
		anew := progress.Done == 0 && before.Done > 0 || progress.Reason != before.Reason || progress.Message != before.Message
		if !first && !anew && (progress.Done == 0 || time.Since(reported) < Every) {
			continue
		}
		reported = time.Now()
		l.report(ctx, one.owner)
	}
	return nil
}

// direct reaches pods, which no proxy does.
var direct = &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, ResponseHeaderTimeout: 10 * time.Second}}

// tokenOf finds the password of a pod's progress where the builder put it.
func tokenOf(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		for _, env := range container.Env {
			if env.Name == transfer.EnvToken {
				return env.Value
			}
		}
	}
	return ""
}

// portOf is where pod tells of its progress.
func portOf(pod *corev1.Pod) (port int, tells bool) {
	for _, container := range pod.Spec.Containers {
		for _, one := range container.Ports {
			if one.Name == Port {
				return int(one.ContainerPort), pod.Status.PodIP != ""
			}
		}
	}
	return 0, false
}
