package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const module = "module example.com/x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.37.1\n\tk8s.io/kubectl v0.0.0\n)\n"

func newModule(t *testing.T) Component {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": module, "go.sum": "a b\n", "main.go": "package main\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Component{Name: "x", Dir: dir, Flags: []string{"-trimpath"}, Packages: []string{"."}, Output: "x"}
}

func key(t *testing.T, c Component) string {
	t.Helper()
	k, err := c.Key()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyChangesWithWhatDecidesTheProgram(t *testing.T) {
	first := newModule(t)
	before := key(t, first)
	if again := key(t, newModule(t)); again != before {
		t.Errorf("the same module in another folder has key %s, want %s", again, before)
	}
	for name, change := range map[string]func(c *Component){
		"a source":      func(c *Component) { appendTo(t, c.Dir, "main.go", "// more\n") },
		"a new source":  func(c *Component) { appendTo(t, c.Dir, "more.go", "package main\n") },
		"a requirement": func(c *Component) { appendTo(t, c.Dir, "go.mod", "// more\n") },
		"a checksum":    func(c *Component) { appendTo(t, c.Dir, "go.sum", "c d\n") },
		"the flags":     func(c *Component) { c.Flags = append(c.Flags, "-race") },
		"what is built": func(c *Component) { c.Packages = []string{"tool"} },
	} {
		c := newModule(t)
		change(&c)
		if key(t, c) == before {
			t.Errorf("%s changed and the key did not", name)
		}
	}
}

func appendTo(t *testing.T, dir, file, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestBuildOnceForEveryCheckout(t *testing.T) {
	cache, said := t.TempDir(), 0
	say := func(string, ...any) { said++ }
	first, err := newModule(t).Build(t.Context(), cache, say)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(first, "x")); err != nil {
		t.Fatal(err)
	}
	built := said
	second, err := newModule(t).Build(t.Context(), cache, say)
	if err != nil || second != first || said != built {
		t.Errorf("second build: %s, %v, said %d; want %s from the cache in silence", second, err, said-built, first)
	}
}

func TestBuildSaysWhatTheCompilerSaid(t *testing.T) {
	c := newModule(t)
	appendTo(t, c.Dir, "main.go", "func broken() { nothing() }\n")
	cache := t.TempDir()
	_, err := c.Build(t.Context(), cache, func(string, ...any) {})
	if err == nil || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("error %v, want the compiler's", err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "x-*")); len(left) > 0 {
		t.Errorf("a failed build left %v in the cache", left)
	}
}

func TestVersionFlags(t *testing.T) {
	flags, err := versionFlags(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.37.1", "-X k8s.io/component-base/version.gitMajor=1",
		"-X k8s.io/client-go/pkg/version.gitMinor=37",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("flags %q lack %q", flags, want)
		}
	}
	if _, err := versionFlags("module x\n"); err == nil {
		t.Error("a go.mod without Kubernetes gave flags")
	}
}

func TestRepositoryModulesAreRead(t *testing.T) {
	components, err := Components("../../components")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(components, MetricsServer("../../components")) {
		if len(key(t, c)) != 16 {
			t.Errorf("component %s has no key", c.Name)
		}
	}
}

// Kubernetes takes minutes to compile; the metrics server seconds more as long as each library that
// both have is of the same version.
func TestMetricsServerSharesWhatIsCompiledOfKubernetes(t *testing.T) {
	kubernetes, metrics := requirements(t, "kubernetes"), requirements(t, "metricsserver")
	if metrics["sigs.k8s.io/metrics-server"] == "" || metrics["k8s.io/apiserver"] == "" {
		t.Fatalf("the metrics server's go.mod requires %v", metrics)
	}
	for module, version := range metrics {
		if other := kubernetes[module]; other != "" && other != version {
			t.Errorf("%s is %s for the metrics server and %s for Kubernetes; make it %s in components/metricsserver/go.mod, and exclude %s where tidy brings it back",
				module, version, other, other, version)
		}
	}
}

// requirements are the versions that a component's go.mod asks for, by module, without those
// that it replaces.
func requirements(t *testing.T, component string) map[string]string {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join("../../components", component, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, required, _ := strings.Cut(string(mod), "\nrequire (")
	required, _, _ = strings.Cut(required, "\nreplace ")
	found := map[string]string{}
	for line := range strings.Lines(required) {
		if fields := strings.Fields(line); len(fields) >= 2 && strings.HasPrefix(fields[1], "v") && fields[1] != "v0.0.0" {
			found[fields[0]] = fields[1]
		}
	}
	return found
}
