// Package exportserver is what runs in the pod of a VirtualMachineExport: it gives out volumes to whoever
// shows the export's token, and reads nothing of a request beyond its head, and nothing of a volume, for anybody else.
//
// What is on a volume was written by a guest, or by somebody else who is not trusted: nothing on
// it is followed, and of its files only regular ones are opened.
package exportserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer/patient"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// maxToken is how much of a token is looked at, in bytes.
const maxToken = 4 << 10

// Volumes are what a server gives out: by name, a folder with disk.img or a block device; or the folder of files.
type Volumes struct {
	Disks, Files map[string]string
	// Manifest is a file with the definition of the VM that they are of, as a List in JSON; empty for none.
	Manifest string
	// HeaderSecret is the name of the Secret that the definition names, with the token.
	HeaderSecret string
}

// Server gives out volumes.
type Server struct {
	volumes Volumes
	// tokenFile has the token. It is read at each request, so that a token which is exchanged counts at once.
	tokenFile string
	// tag tells what this server gives out apart from what another one did: a VM may have run in between.
	tag string
}

// New returns a server of volumes for whoever has the token in tokenFile.
func New(volumes Volumes, tokenFile string) *Server {
	return &Server{volumes: volumes, tokenFile: tokenFile, tag: rand.Text()}
}

// ServeHTTP answers health checks of everybody, and gives volumes to who has the token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == vmexport.PathHealth {
		_, _ = io.WriteString(w, "OK") // who asks may be gone
		return
	}
	known, err := s.known(r)
	switch {
	case err != nil:
		log.FromContext(r.Context()).Error(err, "Reading the token failed")
		refuse(w, http.StatusInternalServerError, "the token cannot be read; see the log of the export's pod")
		return
	case !known:
		refuse(w, http.StatusUnauthorized, "the header "+vmexport.Token+" has not the token that is in the export's Secret")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "volumes are only read: use GET or HEAD")
		return
	}
	w.Header().Set("Cache-Control", "private, no-store") // a cache on the way would ask nobody for the token
	if s.volumes.Manifest != "" && vmexport.IsDefinition(r.URL.Path) {
		s.define(w, r)
		return
	}
	volume, format, rest, found := vmexport.ParsePath(r.URL.Path)
	path, has := s.path(volume, format)
	if !found || !has {
		refuse(w, http.StatusNotFound, "no such volume in that format; the export's status.links have all")
		return
	}
	w = patient.Writer(w)
	log.FromContext(r.Context()).Info("Serving", "volume", volume, "format", format, "method", r.Method, "range", r.Header.Get("Range"))
	switch format {
	case exportv1.KubeVirtRaw:
		s.raw(w, r, volume, path)
	case exportv1.KubeVirtGz:
		s.packed(w, r, volume, path)
	case exportv1.Dir:
		s.folder(w, r, path, rest)
	case exportv1.ArchiveGz:
		s.archive(w, r, volume, path)
	}
}

// path is where a volume is, when there is one in that format.
func (s *Server) path(volume string, format exportv1.ExportVolumeFormat) (path string, found bool) {
	if slices.Contains(vmexport.Disk, format) {
		path, found = s.volumes.Disks[volume]
	} else {
		path, found = s.volumes.Files[volume]
	}
	return path, found
}

// token reads the token, which is never empty.
func (s *Server) token() (string, error) {
	file, err := os.Open(s.tokenFile)
	if err != nil {
		return "", fmt.Errorf("opening the token: %w", err)
	}
	defer file.Close()
	wanted, err := io.ReadAll(io.LimitReader(file, maxToken))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimRight(string(wanted), "\r\n")
	if token == "" {
		return "", fmt.Errorf("the export's Secret has no %s", vmexport.KeyToken)
	}
	return token, nil
}

// known says whether r has the token: in its header, or else in its query. How long that takes tells nothing of it.
func (s *Server) known(r *http.Request) (bool, error) {
	token, err := s.token()
	if err != nil {
		return false, err
	}
	shown := r.Header.Get(vmexport.Token)
	if shown == "" {
		shown = r.URL.Query().Get(vmexport.Token)
	}
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1, nil
}

// refuse says why nothing is given, and hangs up: what else the client sends is not read.
func refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, code)
}

// abort cuts the connection of an answer that is not whole: the client would take its end for the volume's.
func abort(ctx context.Context, w http.ResponseWriter, err error) {
	log.FromContext(ctx).Error(err, "Serving broke off")
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close() // it is of no use any more
	}
}
