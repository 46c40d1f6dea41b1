package importer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
)

// A pod's log tells more the higher its level is, and at none of a password or of what an address has behind its question mark.
func TestLogsTellMoreByLevel(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "disk.raw", time.Time{}, strings.NewReader(strings.Repeat("\x00", 1<<20)))
	}))
	defer server.Close()
	for level, want := range map[int][]string{
		0: {"Import done"},
		1: {"Import done", "Importing"},
		2: {"Import done", "Importing", "Found the file", "Reading at any offset"},
		4: {"Import done", "Importing", "Found the file", "Reading at any offset", "Answer of the server"},
	} {
		var lines strings.Builder
		logger := funcr.New(func(_, line string) { lines.WriteString(line + "\n") }, funcr.Options{Verbosity: level})
		dir := t.TempDir()
		err := importer.RunPod(ctrllog.IntoContext(context.Background(), logger), importer.PodOptions{
			Options: importer.Options{Target: target.Options{Path: filepath.Join(dir, "disk.img"), Size: 1 << 20}, Writers: 1},
			URL:     strings.Replace(server.URL, "http://", "http://me:pa55word@", 1) + "/disk.raw?signature=5ecret",
		})
		if err != nil {
			t.Fatal(err)
		}
		got := lines.String()
		for _, message := range []string{"Import done", "Importing", "Found the file", "Reading at any offset", "Answer of the server"} {
			if told := strings.Contains(got, `"msg"="`+message+`"`); told != strings.Contains(strings.Join(want, "\n"), message) {
				t.Errorf("level %d tells of %q: %v, in\n%s", level, message, told, got)
			}
		}
		for _, secret := range []string{"pa55word", "5ecret"} {
			if strings.Contains(got, secret) {
				t.Errorf("level %d tells %s, in\n%s", level, secret, got)
			}
		}
	}
}
