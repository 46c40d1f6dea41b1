package importer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/corpus"
)

// In the environment of the test's own program, started anew, these name the file on a server, or the folder of a
// volume, that it imports as an importer pod does, the folder that it makes the disk and its report in, and, as JSON, its access.
const (
	importInProcess = "SLIPWAY_TEST_IMPORT"
	importTo        = "SLIPWAY_TEST_IMPORT_TO"
	importWith      = "SLIPWAY_TEST_IMPORT_WITH"
	importFiles     = "SLIPWAY_TEST_IMPORT_FILES" // true for an archive of files
)

func TestMain(m *testing.M) {
	if url := os.Getenv(importInProcess); url != "" {
		if importIn(url, os.Getenv(importTo)) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func importIn(url, dir string) error {
	var with access
	if told := os.Getenv(importWith); told != "" {
		if err := json.Unmarshal([]byte(told), &with); err != nil {
			return err
		}
	}
	logger := funcr.New(func(prefix, line string) { fmt.Fprintln(os.Stderr, prefix, line) }, funcr.Options{Verbosity: 9})
	options := importer.PodOptions{
		URL: url, TerminationLog: filepath.Join(dir, "report"),
		Server: with.Server, CertDir: with.CertDir, ProxyCertDir: with.ProxyCertDir, CredentialsDir: with.CredentialsDir, SkipVerify: with.SkipVerify,
		Options: importer.Options{Target: target.Options{Path: filepath.Join(dir, "volume", "disk.img"), Size: diskSize}},
	}
	if filepath.IsAbs(url) {
		options.URL, options.CopyFrom = "", url
	}
	if os.Getenv(importFiles) == "true" {
		options.Archive, options.Target.Path = true, filepath.Join(dir, "volume")
	}
	err := importer.RunPod(ctrllog.IntoContext(context.Background(), logger), options)
	return errors.Join(err, writePeak(filepath.Join(dir, "peak")))
}

// An importer that is killed at any moment leaves what the next one makes the right disk of; the
// next one may be killed as well.
func TestAnImporterIsKilledAtAnyMoment(t *testing.T) {
	disk := newDisk()
	dir := t.TempDir()
	raw := filepath.Join(dir, "disk.raw")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	server := serve(t, dir)
	seed := corpus.From(t)
	for name, file := range map[string]string{
		"raw":   raw,
		"qcow2": qcow2(t, raw, filepath.Join(dir, "disk.qcow2"), "-c"),
		"vmdk":  convert(t, raw, filepath.Join(dir, "disk.vmdk"), "vmdk", "-o", "subformat=streamOptimized"),
		"xz":    pack(t, raw, filepath.Join(dir, "disk.raw.xz"), "xz", "-c"),
		"copy":  volumeWith(t, disk),
	} {
		url := server.URL + "/" + filepath.Base(file)
		if name == "copy" {
			url = file
		}
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			whole := importFor(t, url, t.TempDir(), 0)
			dir, killed := t.TempDir(), 0
			for n := 0; n < corpus.Times(4, 20) || killed == 0 && n < 100; n++ {
				if took := importFor(t, url, dir, time.Duration(1+random.Int64N(int64(whole)))); took > 0 {
					removeDisk(t, dir)       // it was through before: the next begins anew
					whole = min(whole, took) // the machine may have been busier when that was measured
					continue
				}
				killed++
				if random.IntN(2) == 0 {
					importFor(t, url, dir, 0)
					wantWhole(t, dir, disk)
					removeDisk(t, dir)
				}
			}
			importFor(t, url, dir, 0)
			wantWhole(t, dir, disk)
			if killed == 0 {
				t.Errorf("no importer was killed before it was through, which takes %s", whole)
			}
		})
	}
}

// importFor imports in a process of its own, which it kills after that time; with 0 never. It
// returns how long the import took, or 0 when it was killed.
func importFor(t *testing.T, url, dir string, after time.Duration) time.Duration {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "volume"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if after > 0 {
		ctx, stop = context.WithTimeout(ctx, after)
		defer stop()
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), importInProcess+"="+url, importTo+"="+dir)
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return time.Since(begun)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0
	}
	t.Fatalf("the import failed: %v\n%s", err, out)
	return 0
}

func removeDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "volume")); err != nil {
		t.Fatal(err)
	}
}

// wantWhole checks the disk and what the last import reported of it, and that nothing else is on the volume.
func wantWhole(t *testing.T, dir string, disk []byte) {
	t.Helper()
	report, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	result, err := transfer.Decode(string(report))
	if err != nil {
		t.Fatal(err)
	}
	imported{result: result, path: filepath.Join(dir, "volume", "disk.img")}.wantDisk(t, disk, diskSize)
}
