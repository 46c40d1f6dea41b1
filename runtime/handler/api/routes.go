package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// guest is the VM that a request is about.
type guest struct {
	vmi     *v1.VirtualMachineInstance
	session *session.Session
	state   protocol.State
}

// route answers a request about a guest that runs or is paused; an error is the answer, too.
type route func(s *Server, w http.ResponseWriter, r *http.Request, guest guest) error

// routes are all that is served, below the VMI's path.
var routes = map[string]route{
	"PUT pause":          action((*session.Session).Pause),
	"PUT unpause":        action((*session.Session).Unpause),
	"PUT reset":          action((*session.Session).Reset),
	"PUT softreboot":     (*Server).softReboot,
	"PUT freeze":         (*Server).freeze,
	"PUT unfreeze":       (*Server).unfreeze,
	"GET guestosinfo":    told((*session.Session).GuestInfo),
	"GET userlist":       told((*session.Session).Users),
	"GET filesystemlist": told((*session.Session).Filesystems),
	"GET vnc/screenshot": (*Server).screenshot,
	"GET console":        (*Server).console,
	"GET vnc":            (*Server).vnc,
	"GET usbredir":       (*Server).usbredir,
	"GET vsock":          (*Server).vsock,
}

// base is the path of a VMI.
const base = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}/"

func (s *Server) routes() http.Handler {
	known := http.NewServeMux()
	for name, answer := range routes {
		method, path, _ := strings.Cut(name, " ")
		known.HandleFunc(method+" "+base+path, func(w http.ResponseWriter, r *http.Request) {
			guest, err := s.find(r)
			if err == nil {
				err = answer(s, w, r, guest)
			}
			if err != nil {
				refuse(w, r, err)
			}
		})
	}
	known.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false))
	})
	all := http.NewServeMux()
	all.Handle("/", s.callers.admit(known))
	all.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return all
}

// Messages that clients know.
const (
	messageNotRunning = "VMI is not running"
	messageNoAgent    = "VMI does not have guest agent connected"
)

// find looks the guest up that a request names.
func (s *Server) find(r *http.Request) (guest, error) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	vmi := &v1.VirtualMachineInstance{}
	if err := s.options.Client.Get(r.Context(), key, vmi); err != nil {
		return guest{}, fmt.Errorf("getting VMI %s: %w", key, err)
	}
	if vmi.Status.NodeName != s.options.NodeName { // it is leaving
		return guest{}, refusal(apierrors.NewNotFound(v1.Resource("virtualmachineinstance"), key.Name))
	}
	found := guest{vmi: vmi, session: s.options.Sessions.OfVMI(vmi.UID)}
	if found.session == nil {
		return guest{}, fmt.Errorf("reaching VMI %s: %w", key, session.ErrNotConnected)
	}
	view := found.session.View()
	if view.Launcher == nil || view.State == nil {
		return guest{}, fmt.Errorf("reaching VMI %s: %w", key, session.ErrNotConnected)
	}
	found.state = *view.State
	if found.state.Phase != protocol.PhaseRunning && found.state.Phase != protocol.PhasePaused {
		return guest{}, found.conflict(messageNotRunning)
	}
	return found, nil
}

// conflict says that the guest is not as a request needs it.
func (g guest) conflict(why string) error {
	return refusal(apierrors.NewConflict(v1.Resource("virtualmachineinstance"), g.vmi.Name, errors.New(why)))
}

// needAgent refuses what only the guest's agent can do.
func (g guest) needAgent() error {
	if !g.state.AgentConnected {
		return g.conflict(messageNoAgent)
	}
	return nil
}

// action is a route that tells the launcher something.
func action(do func(*session.Session, context.Context) error) route {
	return func(_ *Server, w http.ResponseWriter, r *http.Request, guest guest) error {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		if err := do(guest.session, ctx); err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
}

// told is a route that passes on what the guest's agent tells.
func told[T any](ask func(*session.Session, context.Context) (T, error)) route {
	return func(_ *Server, w http.ResponseWriter, r *http.Request, guest guest) error {
		if err := guest.needAgent(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		answer, err := ask(guest.session, ctx)
		if err != nil {
			return err
		}
		writeJSON(w, r, http.StatusOK, answer)
		return nil
	}
}
