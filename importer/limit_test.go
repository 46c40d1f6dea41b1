package importer_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/importer"
)

// A download takes at least the time that its limit gives it, by however many connections it comes.
func TestDownloadsKeepTheirLimit(t *testing.T) {
	const perSecond = 16 << 20
	disk := newDisk()
	ranges := handle(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "disk.raw", time.Time{}, bytes.NewReader(disk))
	})
	whole := handle(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(disk) })
	registry := serveRegistry(t)
	registry.push(t, "team/disk:v1", imageOf(t, v1.ConfigFile{}, layerOf(t, nil, file("disk/disk.img", disk))))
	for name, run := range map[string]func(t *testing.T) imported{
		"ranges": func(t *testing.T) imported {
			return doImport(t, ranges+"/disk.raw", func(o *importer.Options) { o.Source.BytesPerSecond = perSecond })
		},
		"no ranges": func(t *testing.T) imported {
			return doImport(t, whole+"/disk.raw", func(o *importer.Options) { o.Source.BytesPerSecond = perSecond })
		},
		"registry": func(t *testing.T) imported {
			return registry.pull(t, "team/disk:v1", func(o *importer.Options) { o.Registry.BytesPerSecond = perSecond })
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			done := run(t)
			took := time.Since(begin)
			done.wantDisk(t, disk, diskSize)
			const atOnce = 64 << 10
			if least := time.Duration(done.result.Downloaded-atOnce) * time.Second / perSecond; took < least {
				t.Errorf("%d bytes came in %v, which is less than %v", done.result.Downloaded, took, least)
			}
		})
	}
}
