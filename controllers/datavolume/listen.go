package datavolume

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// reportEvery is how often a DataVolume's progress is written at the most.
const reportEvery = 10 * time.Second

// listeners hold one stream to each importer that runs; importers push their progress.
type listeners struct {
	changed chan event.GenericEvent
	start   chan *listener
	port    int // on which importers tell of their progress

	mu     sync.Mutex
	active map[types.NamespacedName]*listener
}

// listener follows one pod.
type listener struct {
	dv      types.NamespacedName
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

func newListeners() *listeners {
	return &listeners{
		changed: make(chan event.GenericEvent, 64), start: make(chan *listener, 64),
		active: map[types.NamespacedName]*listener{}, port: transfer.ProgressPort,
	}
}

// Start runs the streams until ctx ends. The manager calls it.
func (l *listeners) Start(ctx context.Context) error {
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

// follow begins to listen to pod, unless it is listened to already.
func (l *listeners) follow(dv types.NamespacedName, pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.active[dv]; old != nil {
		if old.pod == pod.UID {
			return
		}
		old.end()
	}
	one := &listener{
		dv: dv, pod: pod.UID, ended: make(chan struct{}), token: tokenOf(pod),
		address: "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(l.portOf(pod))) + transfer.ProgressPath,
	}
	select {
	case l.start <- one:
		l.active[dv] = one
	default: // more starts at once than anyone reads; the next pass tries again
	}
}

// portOf is where pod tells of its progress.
func (l *listeners) portOf(pod *corev1.Pod) int {
	if pod.Labels[names.LabelPod] == containerUpload {
		return upload.ServerProgressPort
	}
	return l.port
}

// follows reports whether pod is listened to.
func (l *listeners) follows(dv types.NamespacedName, pod types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.active[dv]
	return one != nil && one.pod == pod
}

// stop ends the listening for a DataVolume.
func (l *listeners) stop(dv types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.active[dv]; one != nil {
		one.end()
		delete(l.active, dv)
	}
}

// latest is what pod said last; zero when it has said nothing. told is false while it was not asked yet.
func (l *listeners) latest(pod *corev1.Pod) (progress transfer.Progress, told bool) {
	if pod == nil {
		return transfer.Progress{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.active {
		if one.pod == pod.UID {
			one.mu.Lock()
			defer one.mu.Unlock()
			return one.latest, one.told
		}
	}
	return transfer.Progress{}, false
}

func (l *listener) end() { l.once.Do(func() { close(l.ended) }) }

// run keeps a stream to the pod until it is stopped. An importer that was restarted is found again.
func (l *listeners) run(ctx context.Context, one *listener) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-one.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	logger := log.FromContext(ctx).WithValues("DataVolume", one.dv.String())
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		err := l.stream(ctx, one)
		if ctx.Err() != nil {
			return
		}
		if _, first := one.set(l.said(one)); first {
			l.report(ctx, one)
		}
		logger.V(1).Info("Listening to the importer again", "pause", pause, "cause", fmt.Sprint(err))
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
func (l *listeners) said(one *listener) transfer.Progress {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.latest
}

// report brings a pass over the listener's DataVolume.
func (l *listeners) report(ctx context.Context, one *listener) {
	select {
	case l.changed <- event.GenericEvent{Object: &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: one.dv.Namespace, Name: one.dv.Name}}}:
	case <-ctx.Done():
	}
}

// stream reads lines until the importer ends them, and reports at most once in reportEvery; at once
// what a pod says first, that it begins anew, and that what came is of no use.
func (l *listeners) stream(ctx context.Context, one *listener) error {
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
		return fmt.Errorf("asking for the progress: the importer answers %s", response.Status)
	}
	var reported time.Time
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		var progress transfer.Progress
		if err := json.Unmarshal(lines.Bytes(), &progress); err != nil {
			return fmt.Errorf("reading the progress: %w", err)
		}
		before, first := one.set(progress)
		anew := progress.Done == 0 && before.Done > 0 || progress.Reason != before.Reason || progress.Message != before.Message
		if !first && !anew && (progress.Done == 0 || time.Since(reported) < reportEvery) {
			continue
		}
		reported = time.Now()
		l.report(ctx, one)
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
