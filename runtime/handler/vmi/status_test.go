package vmi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// passFile is a golden test's case: what a pass has seen.
type passFile struct {
	VMI     v1.VirtualMachineInstance `json:"vmi"`
	State   *protocol.State           `json:"state"`
	Synced  *protocol.Facts           `json:"synced"`
	Trouble string                    `json:"trouble"`
	Failure string                    `json:"failure"`
	Pod     *corev1.Pod               `json:"pod"`
	Silence *protocol.Silence         `json:"silence"`
	Unheard bool                      `json:"unheard"`
}

func (f passFile) scope() *scope {
	s := &scope{vmi: &f.VMI, pod: f.Pod, view: session.View{State: f.State, Silence: f.Silence, Heard: !f.Unheard}}
	if f.Synced != nil {
		s.view.Synced = &session.Synced{Facts: *f.Synced, PodInterface: "eth0"}
	}
	if f.Trouble != "" {
		s.trouble = errors.New(f.Trouble)
	}
	if f.Failure != "" {
		s.failure = &failure{reason: ReasonContainerDiskLost, message: f.Failure}
	}
	return s
}

var testNow = metav1.NewTime(time.Date(2026, 9, 1, 12, 0, 30, 0, time.UTC))

func TestStatusMatchesItsGoldenFiles(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".in.yaml"), func(t *testing.T) {
			in := readPass(t, path)
			status := compute(in.scope(), current(&in.VMI), testNow)
			got, err := yaml.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, strings.TrimSuffix(path, ".in.yaml")+".out.yaml", got)
		})
	}
}

func TestASecondPassHasNothingNewToSay(t *testing.T) {
	in := readPass(t, "testdata/running-with-agent.in.yaml")
	first := compute(in.scope(), current(&in.VMI), testNow)
	second := compute(in.scope(), first, metav1.NewTime(testNow.Add(time.Minute)))
	a, errA := yaml.Marshal(first)
	b, errB := yaml.Marshal(second)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("got %s, then %s (%v, %v)", a, b, errA, errB)
	}
}

func TestTheLedgerBridgesAStaleCacheOnly(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.UID, vmi.ResourceVersion, vmi.Status.Phase = "a", "1", v1.Scheduled
	key := types.NamespacedName{Namespace: "default", Name: "x"}
	var l ledger
	l.keep(key, vmi, &runtimeStatus{Phase: v1.Running})
	if got := l.latest(key, vmi).Phase; got != v1.Running {
		t.Errorf("at the version that was written over: got %s", got)
	}
	vmi.ResourceVersion = "2"
	if got := l.latest(key, vmi).Phase; got != v1.Scheduled {
		t.Errorf("at a later version: got %s", got)
	}
	vmi.UID, vmi.ResourceVersion = "b", "1"
	if got := l.latest(key, vmi).Phase; got != v1.Scheduled {
		t.Errorf("for another object of the name: got %s", got)
	}
	l.forget(key)
	if len(l.entries) != 0 {
		t.Error("it forgets nothing")
	}
}

func TestGraceIsCountedFromTheDeletion(t *testing.T) {
	deleted := metav1.NewTime(testNow.Add(-10 * time.Second))
	zero, minute := int64(0), int64(60)
	for name, c := range map[string]struct {
		set  *int64
		want time.Duration
	}{
		"by default 30 s":   {nil, 20 * time.Second},
		"as the spec says":  {&minute, 50 * time.Second},
		"none left at once": {&zero, -10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.DeletionTimestamp, vmi.Spec.TerminationGracePeriodSeconds = &deleted, c.set
			if got := graceLeft(vmi, testNow.Time); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func readPass(t *testing.T, path string) passFile {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var in passFile
	if err := yaml.UnmarshalStrict(data, &in); err != nil {
		t.Fatalf("decoding %s: %v", path, err)
	}
	return in
}
