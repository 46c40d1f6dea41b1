package profiler

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Paths of a program's profiler, beside its metrics; the field's.
const (
	StartPath = "/start-profiler"
	StopPath  = "/stop-profiler"
	DumpPath  = "/dump-profiler"
)

// PortName is the name of the port of a component's pod that metrics and profiles are served at.
const PortName = "metrics"

// authorities is the object that says whom the API server trusts to be virt-api.
var authorities = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// authoritiesName is its name.
const authoritiesName = "v1." + virtv1.SubresourceGroupName

// Serve has mgr's server of metrics serve the program's profiler too: to virt-api alone, which shows a certificate of the
// authority that the API server knows it by, and only while on says so of the KubeVirt object.
func Serve(mgr ctrl.Manager, on func(*virtv1.KubeVirt) bool) error {
	reader := mgr.GetAPIReader()
	served := Handlers(&Profiler{}, &Guard{
		Authorities: func(ctx context.Context) ([]byte, error) { return readAuthorities(ctx, reader) },
		On: func(ctx context.Context) (bool, error) {
			kubevirts := &virtv1.KubeVirtList{}
			if err := reader.List(ctx, kubevirts); err != nil {
				return false, fmt.Errorf("reading the KubeVirt object: %w", err)
			}
			return len(kubevirts.Items) > 0 && on(&kubevirts.Items[0]), nil
		},
	})
	for path, handler := range served {
		if err := mgr.AddMetricsServerExtraHandler(path, handler); err != nil {
			return fmt.Errorf("serving %s: %w", path, err)
		}
	}
	return nil
}

// readAuthorities returns the certificates, in PEM, of whom the API server trusts to be virt-api.
func readAuthorities(ctx context.Context, reader client.Reader) ([]byte, error) {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(authorities)
	if err := reader.Get(ctx, client.ObjectKey{Name: authoritiesName}, service); err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", authoritiesName, err)
	}
	bundle, _, err := unstructured.NestedString(service.Object, "spec", "caBundle")
	if err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", authoritiesName, err)
	}
	decoded, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		return nil, fmt.Errorf("reading spec.caBundle of APIService %s: %w", authoritiesName, err)
	}
	return decoded, nil
}

// Handlers are what p does by path, for whom guard lets in.
func Handlers(p *Profiler, guard *Guard) map[string]http.Handler {
	return map[string]http.Handler{
		StartPath: guard.before("start profiler", func(http.ResponseWriter, *http.Request) error { return p.Start() }),
		StopPath:  guard.before("stop profiler", func(http.ResponseWriter, *http.Request) error { p.Stop(); return nil }),
		DumpPath:  guard.before("dump profiler results", func(w http.ResponseWriter, r *http.Request) error { return dump(p, w, r) }),
	}
}

func dump(p *Profiler, w http.ResponseWriter, r *http.Request) error {
	profiles, err := p.Dump()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(virtv1.ProfilerResult{PprofData: profiles}); err != nil {
		log.FromContext(r.Context()).V(1).Info("The caller went away", "path", r.URL.Path, "reason", err.Error())
	}
	return nil
}

// Off is what is answered while the profiler is off, to who wants to do what, in the field's words.
func Off(what string) string {
	return fmt.Sprintf(`Unable to %s. "ClusterProfiler" feature gate must be enabled: `+
		"set spec.configuration.developerConfiguration.clusterProfiler of the KubeVirt object", what)
}

// before has do answer whom the guard lets in, who wants to do what.
func (g *Guard) before(what string, do func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "ask with GET", http.StatusMethodNotAllowed)
			return
		}
		if err := g.admit(r, what); err != nil {
			refuse(w, r, err)
			return
		}
		log.FromContext(r.Context()).Info("Profiling", "reason", what)
		if err := do(w, r); err != nil {
			refuse(w, r, err)
		}
	})
}

// refusal is why a caller is not let in.
type refusal struct {
	code    int
	message string
}

// Error is what the caller reads.
func (r *refusal) Error() string { return r.message }

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	if refused, ok := errors.AsType[*refusal](err); ok {
		code = refused.code
	} else {
		log.FromContext(r.Context()).Error(err, "profiling", "path", r.URL.Path)
	}
	http.Error(w, err.Error(), code)
}
