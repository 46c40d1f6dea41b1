package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// launcher answers with what it is.
type launcher func(context.Context) (protocol.Stats, error)

func (l launcher) Stats(ctx context.Context) (protocol.Stats, error) { return l(ctx) }

// silence is a launcher that never answers.
func silence(ctx context.Context) (protocol.Stats, error) {
	<-ctx.Done()
	return protocol.Stats{}, fmt.Errorf("waiting for the reply to stats: %w", ctx.Err())
}

func fails(err error) launcher {
	return func(context.Context) (protocol.Stats, error) { return protocol.Stats{}, err }
}

// running is a VMI on node1 by the name of its uid.
func running(name string) v1.VirtualMachineInstance {
	vmi := v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = name, "shop", types.UID(name)
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node1"
	return vmi
}

func collector(ctx context.Context, launchers map[types.UID]Launcher, vmis ...v1.VirtualMachineInstance) *Collector {
	return New(ctx, Options{
		VMIs: func(context.Context) ([]v1.VirtualMachineInstance, error) {
			return append([]v1.VirtualMachineInstance{}, vmis...), nil
		},
		Launcher: func(uid types.UID) Launcher { return launchers[uid] },
	})
}

// exposed is what Prometheus would read.
func exposed(t *testing.T, c *Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("the scrape failed: %s", answer.Body)
	}
	return answer.Body.String()
}

func TestWhatALauncherTellsIsExposedInTheFieldsWords(t *testing.T) {
	recorded, err := os.ReadFile("testdata/guest.in.json")
	if err != nil {
		t.Fatal(err)
	}
	tells := func(context.Context) (stats protocol.Stats, err error) {
		return stats, json.Unmarshal(recorded, &stats)
	}
	web := running("web")
	web.Labels = map[string]string{"kubevirt.io/domain": "web", "app-tier": "front", "app.tier": "dropped"}
	var got string
	synctest.Test(t, func(t *testing.T) { // where no launcher is late
		got = exposed(t, collector(t.Context(), map[types.UID]Launcher{"web": launcher(tells)}, web))
	})
	fixture.Golden(t, "testdata/guest.out.txt", got)
	for _, m := range All() {
		if !strings.Contains(got, "# TYPE "+m.Name+" "+string(m.Kind)+"\n") {
			t.Errorf("%s is listed, and the recorded guest does not show it", m.Name)
		}
	}
}

func TestWhoCannotBeMeasuredIsNamedWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := running("pending")
		pending.Status.Phase = v1.Scheduled
		got := exposed(t, collector(t.Context(), map[types.UID]Launcher{
			"old": fails(session.ErrOldLauncher), "away": fails(session.ErrNotConnected),
			"silent": launcher(silence), "failed": fails(errors.New("libvirt says no")),
		}, running("old"), running("away"), running("unknown"), running("silent"), running("failed"), pending))
		for name, reason := range map[string]string{
			"old": "old_launcher", "away": "away", "unknown": "away", "silent": "silent", "failed": "failed",
		} {
			want := fmt.Sprintf("slipway_vmi_measured{name=%q,namespace=\"shop\",node=\"node1\",reason=%q} 0\n", name, reason)
			if !strings.Contains(got, want) {
				t.Errorf("there is no %s in\n%s", want, got)
			}
		}
		if strings.Contains(got, "pending") {
			t.Errorf("a VMI without a guest is named:\n%s", got)
		}
	})
}

func TestWhoAsksOftenAsksNoGuestMoreOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := collector(t.Context(), map[types.UID]Launcher{"a": launcher(func(context.Context) (protocol.Stats, error) {
			asked++
			return protocol.Stats{}, nil
		})}, running("a"))
		c.options.Fresh = time.Minute
		exposed(t, c)
		if got := exposed(t, c); asked != 1 || !strings.Contains(got, `slipway_vmi_measured{name="a"`) {
			t.Errorf("asked %d times; the second scrape says\n%s", asked, got)
		}
		time.Sleep(time.Minute)
		if exposed(t, c); asked != 2 {
			t.Errorf("asked %d times after a minute", asked)
		}
	})
}

func TestLaunchersThatHangDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launchers := map[types.UID]Launcher{}
		var vmis []v1.VirtualMachineInstance
		for i := range 10 * atOnce {
			name := fmt.Sprint("hangs-", i)
			vmis, launchers[types.UID(name)] = append(vmis, running(name)), launcher(silence)
		}
		var answered time.Time
		launchers["well"] = launcher(func(context.Context) (protocol.Stats, error) {
			answered = time.Now()
			return protocol.Stats{}, nil
		})
		c := collector(t.Context(), launchers, append(vmis, running("well"))...)
		for range 2 {
			began := time.Now()
			got := exposed(t, c)
			if took := time.Since(began); took > scrapePatience {
				t.Errorf("the scrape took %s", took)
			}
			if strings.Count(got, `reason="silent"} 0`) < len(vmis) {
				t.Errorf("not all who hang are named")
			}
		}
		// Whoever waited in vain for its turn the first time is among the silent, too.
		launchers["new"] = launchers["well"]
		began := time.Now()
		if exposed(t, collectorLike(c, append(vmis, running("new")))); answered != began {
			t.Errorf("one that answers was asked %s late", answered.Sub(began))
		}
	})
}

// collectorLike makes c list vmis.
func collectorLike(c *Collector, vmis []v1.VirtualMachineInstance) *Collector {
	c.options.VMIs = func(context.Context) ([]v1.VirtualMachineInstance, error) { return vmis, nil }
	return c
}

func TestScrapesAtTheSameTimeShareOneMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		slow := launcher(func(context.Context) (protocol.Stats, error) {
			asked.Add(1)
			time.Sleep(time.Second)
			return protocol.Stats{}, nil
		})
		c := collector(t.Context(), map[types.UID]Launcher{"web": slow}, running("web"))
		var scrapes sync.WaitGroup
		for range 3 {
			scrapes.Go(func() { c.Collect(make(chan prometheus.Metric, 100)) })
		}
		scrapes.Wait()
		if asked.Load() != 1 {
			t.Errorf("the launcher was asked %d times", asked.Load())
		}
	})
}
