//go:build e2e

package gitops

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/slipway-vm/slipway/pipelines/gitops/bundle"
	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// keysTask is the task that every resolver fetches: it needs neither disk nor guest.
const keysTask = "generate-ssh-keys"

// giveRights puts into the namespace what goes with the task, but not the task.
func giveRights(ctx context.Context, namespace string) {
	GinkgoHelper()
	data, err := fs.ReadFile(tasks.Manifests, keysTask+"/task.yaml")
	Expect(err).NotTo(HaveOccurred())
	reader, made := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))), 0
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		Expect(err).NotTo(HaveOccurred())
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(document, object)).To(Succeed())
		if kind := object.GetKind(); kind == "Task" || kind == "" {
			continue
		}
		object.SetNamespace(namespace)
		suite.Create(ctx, object)
		made++
	}
	Expect(made).To(Equal(3), "ServiceAccount, Role and RoleBinding")
}

// stepImages are the images that the cluster has, by their names in the manifests.
func stepImages() map[string]string {
	GinkgoHelper()
	images, err := suite.World.Images()
	Expect(err).NotTo(HaveOccurred())
	return map[string]string{
		"ghcr.io/slipway-vm/slipway":         images["slipway"].Ref,
		"ghcr.io/slipway-vm/slipway-guestfs": images["slipway-guestfs"].Ref,
	}
}

// serve serves to the cluster's pods until the test ends, and returns the root's URL.
func serve(ctx context.Context, handler http.Handler) string {
	GinkgoHelper()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, handler)
	Expect(err).NotTo(HaveOccurred())
	return root
}

// command runs a program and returns what it prints on standard output.
func command(ctx context.Context, dir, program string, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr = dir, GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), "%s %v", program, args)
	return strings.TrimSpace(string(out))
}

func fromCluster(context.Context) (tektonv1.Params, string) {
	return stringParams("kind", "task", "namespace", catalog, "name", keysTask), "/namespaces/" + catalog + "/task/" + keysTask
}

func fromBranch(ctx context.Context) (tektonv1.Params, string) {
	url, _ := repository(ctx)
	return stringParams("url", url, "revision", "main", "pathInRepo", "tasks/"+keysTask+".yaml"), url
}

func fromCommit(ctx context.Context) (tektonv1.Params, string) {
	url, commit := repository(ctx)
	return stringParams("url", url, "revision", commit, "pathInRepo", "tasks/"+keysTask+".yaml"), url
}

// repository serves a repository with the tasks by git's own server, and returns its URL and commit.
func repository(ctx context.Context) (url, commit string) {
	GinkgoHelper()
	root := GinkgoT().TempDir()
	work := filepath.Join(root, "work")
	folder := filepath.Join(work, "tasks")
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	objects, err := bundle.Tasks(stepImages())
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		text, err := object.YAML()
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, object.Name+".yaml"), text, 0o600)).To(Succeed())
	}
	command(ctx, work, "git", "init", "--quiet", "--initial-branch=main")
	command(ctx, work, "git", "add", ".")
	command(ctx, work, "git", "-c", "user.name=tests", "-c", "user.email=tests@example.com", "commit", "--quiet", "--message=Tasks")
	command(ctx, root, "git", "clone", "--quiet", "--bare", "work", "builds.git")
	server := serve(ctx, &cgi.Handler{
		Path: filepath.Join(command(ctx, root, "git", "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	return server + "/builds.git", command(ctx, work, "git", "rev-parse", "HEAD")
}

// fromBundle pushes the bundles to a registry as a user does.
func fromBundle(ctx context.Context) (tektonv1.Params, string) {
	GinkgoHelper()
	at := strings.TrimPrefix(serve(ctx, registry.New()), "http://") + "/slipway"
	args := []string{"run", "./hack/bundle", "push", "--insecure", "--registry", at}
	for name, image := range stepImages() {
		args = append(args, "--image", name+"="+image)
	}
	references := strings.Fields(command(ctx, suite.World.Root, "go", args...))
	Expect(references).To(HaveLen(2))
	return stringParams("kind", "task", "bundle", references[0], "name", keysTask), at + "/slipway-tasks"
}

// fromHub serves the task as Artifact Hub does: a list of versions, and each version's manifest.
func fromHub(ctx context.Context) (tektonv1.Params, string) {
	GinkgoHelper()
	objects, err := bundle.Tasks(stepImages())
	Expect(err).NotTo(HaveOccurred())
	packages := http.NewServeMux()
	answer := func(pattern string, body any) {
		packages.HandleFunc("GET /api/v1/packages/tekton-task/slipway-tasks/"+pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body)
		})
	}
	for _, object := range objects {
		text, err := object.YAML()
		Expect(err).NotTo(HaveOccurred())
		answer(object.Name, map[string]any{"version": "0.1.0", "available_versions": []any{map[string]any{"version": "0.1.0"}}})
		answer(object.Name+"/0.1.0", map[string]any{"data": map[string]any{"manifestRaw": string(text)}})
	}
	url := serve(ctx, packages)
	return stringParams("type", "artifact", "url", url, "kind", "task", "catalog", "slipway-tasks", "version", "0.1.0", "name", keysTask),
		url + "/api/v1/packages/tekton-task/slipway-tasks/" + keysTask
}
