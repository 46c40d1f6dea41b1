package metric

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// exposed is what Prometheus would read of a gatherer.
func exposed(t *testing.T, from prometheus.Gatherer) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(from, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("the scrape failed: %s", answer.Body)
	}
	return answer.Body.String()
}

func told(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	return exposed(t, registry)
}

func wantLines(t *testing.T, got string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+got, "\n"+line+"\n") {
			t.Errorf("there is no %s in\n%s", line, got)
		}
	}
}

func TestAComponentTellsHowItIs(t *testing.T) {
	led := make(chan struct{})
	var trouble error
	c := Component{Name: "virt_operator", Ready: func(*http.Request) error { return trouble }, Elected: led, Version: "v1"}
	wantLines(t, told(t, c), "kubevirt_virt_operator_ready_status 1", "kubevirt_virt_operator_leading_status 0")
	trouble = errors.New("not yet")
	close(led)
	got := told(t, c)
	wantLines(t, got, "kubevirt_virt_operator_ready_status 0", "kubevirt_virt_operator_leading_status 1")
	if !strings.Contains(got, `kubeversion="v1"} 1`) {
		t.Errorf("no version in\n%s", got)
	}
}

func TestConnectionsAreCountedByVMIWhileTheyLast(t *testing.T) {
	c := NewConnections(Console, VNC)
	now := time.Unix(100, 0)
	c.now = func() time.Time { return now }
	first, second := c.Begin(Console, "shop", "web"), c.Begin(Console, "shop", "web")
	c.Begin(VNC, "shop", "db")
	now = time.Unix(160, 0)
	first()
	wantLines(t, told(t, c),
		`kubevirt_console_active_connections{namespace="shop",vmi="web"} 1`, `kubevirt_vnc_active_connections{namespace="shop",vmi="db"} 1`,
		`kubevirt_vmi_last_api_connection_timestamp_seconds{namespace="shop",vmi="web"} 160`,
		`kubevirt_vmi_last_api_connection_timestamp_seconds{namespace="shop",vmi="db"} 100`)
	second()
	wantLines(t, told(t, c), `kubevirt_console_active_connections{namespace="shop",vmi="web"} 0`)
}

func TestOfTooManyVMIsTheOneThatIsIdleForLongestIsForgotten(t *testing.T) {
	c := NewConnections(Tunnel)
	now := time.Unix(0, 0)
	c.now = func() time.Time { now = now.Add(time.Second); return now }
	defer c.Begin(Tunnel, "shop", "busy")()
	for i := range maxRemembered {
		c.Begin(Tunnel, "shop", "vm"+string(rune('a'+i%26))+strings.Repeat("x", i/26))()
	}
	if _, kept := c.vmis[[2]string{"shop", "busy"}]; !kept || len(c.vmis) != maxRemembered {
		t.Errorf("%d VMIs are kept, the busy one: %t", len(c.vmis), kept)
	}
	if _, kept := c.vmis[[2]string{"shop", "vma"}]; kept {
		t.Error("the one that was idle for longest is kept")
	}
}

func TestWorkQueuesAreToldByTheFieldsNamesToo(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "x"}, []string{"name", "controller", "priority"})
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_queue_duration_seconds", Help: "x", Buckets: []float64{1}}, []string{"name", "controller"})
	registry.MustRegister(depth, waits)
	depth.WithLabelValues("vmi", "vmi", "0").Set(2)
	depth.WithLabelValues("vmi", "vmi", "-100").Set(3)
	depth.WithLabelValues("vm", "vm", "0").Set(7)
	waits.WithLabelValues("vmi", "vmi").Observe(0.5)
	wantLines(t, exposed(t, withFieldNames{registry}),
		`kubevirt_workqueue_depth{name="vmi"} 5`, `kubevirt_workqueue_depth{name="vm"} 7`,
		`workqueue_depth{controller="vmi",name="vmi",priority="0"} 2`,
		`kubevirt_workqueue_queue_duration_seconds_count{name="vmi"} 1`)
}

func TestTheQueuesOfControllersAreAllListed(t *testing.T) {
	nameQueues()
	nameQueues()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), fieldPrefix+fieldPrefix) {
			t.Errorf("%s is renamed twice", family.GetName())
		}
	}
}

func TestRequestsAreReadInTheFieldsWords(t *testing.T) {
	for sentence, test := range map[string]struct {
		method, url string
		want        request
	}{
		"a list of a namespace":    {"GET", "/api/v1/namespaces/shop/pods?limit=500", request{"pods", "LIST", "/api/v1/namespaces/{namespace}/pods"}},
		"a watch of all":           {"GET", "/apis/kubevirt.io/v1/virtualmachines?watch=true", request{"virtualmachines", "WATCH", "/apis/kubevirt.io/v1/virtualmachines"}},
		"one object's status":      {"PATCH", "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/web/status", request{"virtualmachines", "PATCH", "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}/status"}},
		"an object of the cluster": {"GET", "/api/v1/nodes/node1", request{"nodes", "GET", "/api/v1/nodes/{name}"}},
		"a namespace itself":       {"GET", "/api/v1/namespaces/shop", request{"namespaces", "GET", "/api/v1/namespaces/{name}"}},
		"what is made":             {"POST", "/api/v1/namespaces/shop/pods", request{"pods", "CREATE", "/api/v1/namespaces/{namespace}/pods"}},
		"what is written":          {"PUT", "/api/v1/namespaces/shop/pods/web", request{"pods", "UPDATE", "/api/v1/namespaces/{namespace}/pods/{name}"}},
		"a path behind a proxy":    {"GET", "/api/v1/namespaces/shop/pods/web/proxy/a/b", request{"pods", "GET", "/api/v1/namespaces/{namespace}/pods/{name}/proxy"}},
		"no object":                {"GET", "/openapi/v3/apis/kubevirt.io/v1", request{"none", "none", "/openapi"}},
		"a group's kinds":          {"GET", "/apis/kubevirt.io/v1", request{"none", "none", "/apis"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			u, err := url.Parse("https://api" + test.url)
			if err != nil {
				t.Fatal(err)
			}
			if got := requestOf(test.method, u); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// answers answers each request with a code; 0 is an error.
type answers int

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a == 0 {
		return nil, errors.New("nobody there")
	}
	return &http.Response{StatusCode: int(a)}, nil
}

func TestRequestsAreCountedByTheirAnswers(t *testing.T) {
	for _, code := range []answers{200, 200, 503, 0} {
		response, err := counted{code}.RoundTrip(httptest.NewRequest("GET", "https://counted/api/v1/nodes/n", nil))
		if (err != nil) != (code == 0) {
			t.Fatal(response, err)
		}
	}
	wantLines(t, told(t, requests),
		`kubevirt_rest_client_requests_total{code="200",host="counted",method="GET",resource="nodes",verb="GET"} 2`,
		`kubevirt_rest_client_requests_total{code="503",host="counted",method="GET",resource="nodes",verb="GET"} 1`,
		`kubevirt_rest_client_requests_total{code="<error>",host="counted",method="GET",resource="nodes",verb="GET"} 1`)
}

func TestTheLastOfThoseThatTellTheSameIsHeard(t *testing.T) {
	first := Component{Name: "virt_first", Ready: func(*http.Request) error { return nil }}
	second := first
	second.Ready = func(*http.Request) error { return errors.New("no") }
	for _, one := range []Component{first, second} {
		if err := Register(one); err != nil {
			t.Fatal(err)
		}
	}
	wantLines(t, exposed(t, metrics.Registry), "kubevirt_virt_first_ready_status 0")
}

func TestPassesAndPanicsAreCountedByVMI(t *testing.T) {
	Synced("shop", "counted")
	Synced("shop", "counted")
	wantLines(t, told(t, Syncs()), `kubevirt_vmi_sync_total{name="counted",namespace="shop"} 2`)
	ForgetSyncs("shop", "counted")
	if got := told(t, Syncs()); strings.Contains(got, "counted") {
		t.Errorf("it is not forgotten:\n%s", got)
	}
	Panicked("shop", "counted")
	wantLines(t, told(t, Panics()), `kubevirt_vmi_guest_os_panic_total{bugcheck_code="unknown",name="counted",namespace="shop",type="unknown"} 1`)
}
