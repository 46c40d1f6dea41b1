package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

// buildOptions are the flags of build.
type buildOptions struct {
	updateLocks bool
	baseOnly    bool
}

// builder holds what all images of one run share.
type builder struct {
	checkout string
	cache    cache.Dir
	options  buildOptions
	programs map[string]string
}

// unlockedTime is the time of files in images that have no lock.
var unlockedTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// keptArchives is how many versions of one image stay in the cache.
	keptArchives = 10
	// keptLayers is how many versions of one base layer stay in the cache.
	keptLayers = 3
)

func runBuild(ctx context.Context, names []string, options buildOptions) error {
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	dir, err := cache.Default()
	if err != nil {
		return err
	}
	chosen, err := chooseRecipes(names)
	if err != nil {
		return err
	}
	b := &builder{checkout: checkout, cache: dir, options: options, programs: map[string]string{}}
	for _, r := range chosen {
		if err := b.buildOne(ctx, r); err != nil {
			return fmt.Errorf("building image %s: %w", r.name, err)
		}
	}
	return nil
}

func chooseRecipes(names []string) ([]recipe, error) {
	all := recipes()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []recipe
	for _, n := range names {
		i := slices.IndexFunc(all, func(r recipe) bool { return r.name == n })
		if i < 0 {
			var known []string
			for _, r := range all {
				known = append(known, r.name)
			}
			return nil, fmt.Errorf("no image is called %q: name some of %s", n, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func (b *builder) buildOne(ctx context.Context, r recipe) error {
	start := time.Now()
	release, err := b.cache.Lock("image-" + r.name)
	if err != nil {
		return err
	}
	defer release()
	var layers []oci.Layer
	when := unlockedTime
	if r.base != nil {
		layer, resolved, err := b.base(ctx, r)
		if err != nil {
			return err
		}
		layers, when = append(layers, layer), resolved
		fmt.Fprintf(os.Stderr, "%s: base layer %s, unpacked %s\n", r.name, megabytes(layer.Size), megabytes(layer.Unpacked))
	}
	if b.options.baseOnly {
		return nil
	}
	built, cached, err := b.archive(ctx, r, layers, when)
	if err != nil {
		return err
	}
	if err := b.record(r.name, built); err != nil {
		return err
	}
	state := "built in " + time.Since(start).Round(100*time.Millisecond).String()
	if cached {
		state = "unchanged"
	}
	fmt.Fprintf(os.Stderr, "%s: %s %s, %s compressed, %s\n", r.name, built.Ref, state, megabytes(built.Size), built.Digest)
	return nil
}

// archive makes the image's archive unless one of the same inputs is there.
func (b *builder) archive(ctx context.Context, r recipe, layers []oci.Layer, when time.Time) (builtImage, bool, error) {
	entries, err := r.top(ctx, b)
	if err != nil {
		return builtImage{}, false, err
	}
	if r.finish != nil {
		if entries, err = r.finish(ctx, b, layers[0], entries); err != nil {
			return builtImage{}, false, err
		}
	}
	key, err := archiveKey(r, layers, entries)
	if err != nil {
		return builtImage{}, false, err
	}
	ref := fmt.Sprintf("registry.local/%s:%s", r.name, key[:12])
	built := builtImage{Ref: ref, Archive: b.cache.Path("images", fmt.Sprintf("%s-%s.tar", r.name, key[:16]))}
	if known, ok, err := readBuilt(built.Archive); err != nil || ok {
		return known, ok, err
	}
	if err := os.MkdirAll(b.cache.Path("images"), 0o755); err != nil {
		return builtImage{}, false, fmt.Errorf("making the image cache: %w", err)
	}
	top, err := oci.WriteLayer(built.Archive+".top", tree.Tree{Extra: entries, Time: when}.WriteTar)
	if err != nil {
		return builtImage{}, false, err
	}
	defer func() { _ = errors.Join(os.Remove(top.File), os.Remove(top.File+".json")) }()
	image := oci.Image{Ref: ref, Config: r.config, Layers: append(layers, top), Time: when}
	built.Digest, err = oci.WriteArchive(built.Archive, image)
	if err != nil {
		return builtImage{}, false, err
	}
	built.Size = image.PackedSize()
	if err := writeBuilt(built); err != nil {
		return builtImage{}, false, err
	}
	return built, false, b.cache.Prune("images/"+r.name+"-*[0-9a-f].tar", keptArchives)
}

// archiveKey covers everything that the archive's bytes depend on.
func archiveKey(r recipe, layers []oci.Layer, entries []tree.Entry) (string, error) {
	parts := []string{"archive 1", r.name, fmt.Sprintf("%+v", r.config)}
	for _, l := range layers {
		parts = append(parts, l.Digest)
	}
	for _, e := range entries {
		content := e.Data
		if e.File != "" {
			sum, err := cache.FileSHA256(e.File)
			if err != nil {
				return "", err
			}
			content = sum
		}
		parts = append(parts, e.Path, fmt.Sprint(uint32(e.Mode), e.UID, e.GID), content)
	}
	return cache.Key(parts...), nil
}

// base returns the lower layer and its time, making what is not cached.
func (b *builder) base(ctx context.Context, r recipe) (oci.Layer, time.Time, error) {
	lock, err := b.lock(ctx, r.base.lock, r.base.spec)
	if err != nil {
		return oci.Layer{}, time.Time{}, err
	}
	path := b.cache.Path("layers", fmt.Sprintf("%s-%s.tar.gz", r.name, baseKey(r.base, lock)[:16]))
	layer, ok, err := oci.ReadLayer(path)
	if err != nil || ok {
		if ok {
			err = cache.Touch(path)
		}
		return layer, lock.Resolved, err
	}
	fmt.Fprintf(os.Stderr, "%s: making the base layer from %d packages\n", r.name, len(lock.Packages))
	if err := os.MkdirAll(b.cache.Path("layers"), 0o755); err != nil {
		return oci.Layer{}, time.Time{}, fmt.Errorf("making the layer cache: %w", err)
	}
	work, remove, err := b.cache.TempDir(r.name)
	if err != nil {
		return oci.Layer{}, time.Time{}, err
	}
	defer remove()
	root := filepath.Join(work, "root")
	if err := debian.Bootstrap(ctx, b.cache, lock, r.base.spec.Include, root); err != nil {
		return oci.Layer{}, time.Time{}, err
	}
	if r.base.prepare != nil {
		if err := r.base.prepare(ctx, b.cache, root, lock); err != nil {
			return oci.Layer{}, time.Time{}, err
		}
	}
	layer, err = packBase(r.base, lock, root, path)
	if err != nil {
		return oci.Layer{}, time.Time{}, err
	}
	return layer, lock.Resolved, b.cache.Prune("layers/"+r.name+"-*.tar.gz", keptLayers)
}

func packBase(base *baseLayer, lock *debian.Lock, root, path string) (oci.Layer, error) {
	dropped, err := leftOut(base, root)
	if err != nil {
		return oci.Layer{}, err
	}
	t := tree.Tree{
		Root: root, Skip: tree.SkipNames(dropped, append(slices.Clone(usualSkips), base.skip...)), Extra: base.files, Time: lock.Resolved,
	}
	missing, err := t.MissingLibraries()
	if err != nil {
		return oci.Layer{}, err
	}
	if len(missing) > 0 {
		return oci.Layer{}, fmt.Errorf("libraries were left out that others need; correct the lists of what to drop:\n  %s", strings.Join(missing, "\n  "))
	}
	return oci.WriteLayer(path, t.WriteTar)
}

// leftOut lists the files of packages that are needed only for installing.
func leftOut(base *baseLayer, root string) (map[string]bool, error) {
	if len(base.only) == 0 {
		return debian.FilesOf(root, base.drop)
	}
	keep, rest, err := debian.FilesNotOf(root, base.only)
	if err != nil {
		return nil, err
	}
	if err := tree.WithLibraries(root, keep); err != nil {
		return nil, err
	}
	for name := range keep {
		delete(rest, name)
	}
	return rest, nil
}

// baseKey covers everything that a base layer's bytes depend on.
func baseKey(base *baseLayer, lock *debian.Lock) string {
	parts := []string{"base 1", base.version, string(lock.Format()), strings.Join(base.spec.Include, " "), strings.Join(base.drop, " "), strings.Join(base.only, " "),
		strings.Join(base.skip, " "), strings.Join(usualSkips, " ")}
	for _, e := range base.files {
		parts = append(parts, fmt.Sprintf("%+v", e))
	}
	return cache.Key(parts...)
}

// lock reads a lock file, or makes it when asked to or when there is none.
func (b *builder) lock(ctx context.Context, name string, spec debian.Spec) (*debian.Lock, error) {
	return debian.LoadLock(ctx, b.cache, filepath.Join(b.checkout, "hack", "images", "locks", name), spec, b.options.updateLocks)
}

// program compiles p once per run.
func (b *builder) program(ctx context.Context, p program) (string, error) {
	if done, ok := b.programs[p.name]; ok {
		return done, nil
	}
	out, err := goBuild(ctx, b.checkout, p)
	if err != nil {
		return "", err
	}
	b.programs[p.name] = out
	return out, nil
}

func (b *builder) record(name string, built builtImage) error {
	release, err := b.cache.Lock("images-index")
	if err != nil {
		return err
	}
	defer release()
	images, err := readIndex(b.checkout)
	if err != nil {
		return err
	}
	images[name] = built
	return writeIndex(b.checkout, images)
}

func runManifest(w io.Writer) error {
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(indexPath(checkout))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing is built yet: run go run ./hack/images build")
	}
	if err != nil {
		return fmt.Errorf("reading the list of built images: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("printing the list of built images: %w", err)
	}
	return nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
