package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/slipway-vm/slipway/hack/cluster/internal/build"
	"github.com/slipway-vm/slipway/hack/cluster/internal/image"
	"github.com/slipway-vm/slipway/hack/cluster/internal/machine"
	"github.com/slipway-vm/slipway/hack/cluster/internal/tekton"
)

// registry is the domain of local images; nothing answers there.
const registry = "registry.local/"

// nonroot is the uid of images that do not need root.
const nonroot = "65532"

// kubernetesLinks are the names by which the Kubernetes program is called.
var kubernetesLinks = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"}

// tektonPrograms are the programs of Tekton that become images.
var tektonPrograms = []string{"controller", "entrypoint", "events", "nop", "resolvers", "sidecarlogresults", "webhook", "workingdirinit"}

// programs are the folders of the built components, by component.
type programs map[string]string

// Build compiles what the cache lacks and returns the folders by component.
func (p *Program) Build(ctx context.Context) (programs, error) {
	components, err := build.Components(p.Components)
	if err != nil {
		return nil, err
	}
	built := programs{}
	for _, c := range components {
		if built[c.Name], err = c.Build(ctx, p.Cache, p.say); err != nil {
			return nil, err
		}
	}
	return built, nil
}

// link puts the programs' names into the state's bin folder.
func (p *Program) link(built programs) error {
	links := map[string]string{"kubernetes": filepath.Join(built["kubernetes"], "kubernetes")}
	for _, name := range kubernetesLinks {
		links[name] = links["kubernetes"]
	}
	for name, target := range links {
		link := p.Cluster.Bin(name)
		if have, err := os.Readlink(link); err == nil && have == target {
			continue
		}
		tmp := link + ".new"
		_ = os.Remove(tmp)
		if err := os.Symlink(target, tmp); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
		if err := os.Rename(tmp, link); err != nil {
			return fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return nil
}

// images are the archives of the cluster's own images, by short name.
type images map[string]archive

// archive is an image and the file that holds it.
type archive struct {
	// Ref is the image's name.
	Ref string
	// File is its OCI archive.
	File string
}

// makeImages writes the archives of the images that the cache lacks.
func (p *Program) makeImages(ctx context.Context, built programs) (images, error) {
	shell, err := p.shell(ctx)
	if err != nil {
		return nil, err
	}
	made := images{}
	add := func(name, content string, img image.Image) error {
		made[name], err = p.makeImage(name, content, img)
		return err
	}
	for _, c := range []string{"pause", "coredns"} {
		err := add(c, filepath.Base(built[c]), image.Image{
			Files:      []image.File{{Path: "/" + c, Source: filepath.Join(built[c], c), Mode: 0o755}},
			Entrypoint: []string{"/" + c},
		})
		if err != nil {
			return nil, err
		}
	}
	git, gitKey, err := gitFiles(ctx)
	if err != nil {
		return nil, err
	}
	for _, program := range tektonPrograms {
		content := filepath.Base(built["tekton"])
		files := []image.File{{Path: tekton.Path(program), Source: filepath.Join(built["tekton"], program), Mode: 0o755}, {Path: "/tmp/.keep", Mode: 0o644}}
		if program == "resolvers" {
			content, files = content+gitKey, append(files, git...)
		}
		err := add("tekton-"+program, content, image.Image{Files: files, Entrypoint: []string{tekton.Path(program)}, User: nonroot})
		if err != nil {
			return nil, err
		}
	}
	sum, err := fileSum(shell)
	if err != nil {
		return nil, err
	}
	return made, add("busybox", sum, busybox(shell))
}

// makeImage writes an image's archive when the cache lacks it. Its tag follows from content, a
// word for what the image is made of, and from its files.
func (p *Program) makeImage(name, content string, img image.Image) (archive, error) {
	tag := img.Tag(content)
	img.Ref = registry + name + ":" + tag
	made := archive{Ref: img.Ref, File: filepath.Join(p.Cache, "images", name+"-"+tag+".tar")}
	if _, err := os.Stat(made.File); err == nil {
		return made, nil
	}
	p.say("making image %s", img.Ref)
	return made, img.Write(made.File)
}

// busybox is the image with a shell: Tekton unpacks scripts with it, tests use it.
func busybox(program string) image.Image {
	files := []image.File{
		{Path: "/bin/busybox", Source: program, Mode: 0o755},
		{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n"), Mode: 0o644},
		{Path: "/etc/group", Data: []byte("root:x:0:\nnonroot:x:65532:\n"), Mode: 0o644},
		{Path: "/tmp/.keep", Mode: 0o644},
	}
	for _, applet := range []string{
		"sh", "ash", "awk", "base64", "basename", "cat", "chmod", "chown", "cmp", "cp", "cut", "date", "dd", "df", "dirname", "du", "echo", "env",
		"expr", "false", "find", "grep", "head", "hostname", "httpd", "id", "ip", "kill", "ln", "ls", "md5sum", "mkdir", "mknod", "mktemp", "mount", "mv",
		"nc", "nslookup", "od", "ping", "ps", "printf", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tar",
		"tee", "test", "touch", "tr", "true", "truncate", "umount", "uname", "uniq", "vi", "wc", "wget", "which", "xargs", "yes",
	} {
		files = append(files, image.File{Path: "/bin/" + applet, Link: "busybox", Mode: 0o777})
	}
	return image.Image{Files: files, Entrypoint: []string{"/bin/sh"}, User: nonroot}
}

// shell returns Debian's static busybox, fetched without installing it.
func (p *Program) shell(ctx context.Context) (string, error) {
	dir := filepath.Join(p.Cache, "busybox-"+runtime.GOARCH)
	program := filepath.Join(dir, "bin", "busybox")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	p.say("fetching Debian's busybox-static")
	if err := os.MkdirAll(p.Cache, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	if err := machine.Unpack(ctx, "busybox-static", dir); err != nil {
		return "", err
	}
	return program, nil
}

func fileSum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("hashing %s: %w", file, err)
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hashing %s: %w", file, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Assets builds the Kubernetes programs alone and returns a folder that holds
// them by name, for tests against an API server without a cluster.
func (p *Program) Assets(ctx context.Context) (string, error) {
	components, err := build.Components(p.Components)
	if err != nil {
		return "", err
	}
	dir, err := components[0].Build(ctx, p.Cache, p.say)
	if err != nil {
		return "", err
	}
	for _, name := range kubernetesLinks {
		if err := os.Symlink("kubernetes", filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return "", fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return dir, nil
}
