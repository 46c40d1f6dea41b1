package create

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/slipway-vm/slipway/internal/createvm"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// namespace is what the user wrote after --namespace.
type namespace string

func (n namespace) GivenNamespace() string { return string(n) }

// run runs create with the words of a line, as a shell would split them.
func run(t *testing.T, given namespace, line string) (out, told string, err error) {
	t.Helper()
	words, err := createvm.Words(line)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := NewCommand(given)
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SetArgs(words)
	command.SilenceErrors, command.SilenceUsage = true, true
	err = command.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// decode reads a manifest as its API's own types do, and fails on a field that they do not have.
func decode(t *testing.T, manifest string) runtime.Object {
	t.Helper()
	codecs := serializer.NewCodecFactory(scheme.New(), serializer.EnableStrict)
	object, _, err := codecs.UniversalDeserializer().Decode([]byte(manifest), nil, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	return object
}

// Each line prints testdata/<name>.yaml, which decodes strictly.
func TestGolden(t *testing.T) {
	for name, c := range map[string]struct {
		namespace namespace
		line      string
	}{
		"vm":                     {"", `vm --name web --memory 1Gi --volume-containerdisk src:registry.example.com/debian:13 --user admin --ssh-key 'ssh-ed25519 A me@here'`},
		"vm-namespace":           {"shop", `vm --name web --run-strategy Halted --instancetype u1.small --preference linux --volume-pvc src:root,bootorder:1 --volume-import type:blank,size:5Gi,name:data`},
		"vm-sysprep":             {"", `vm --name win --memory 4Gi --volume-pvc src:windows --volume-sysprep src:unattend --access-cred type:password,src:admin --cloud-init none`},
		"clusterinstancetype":    {"", `instancetype --name small --cpu 2 --memory 256Mi`},
		"instancetype":           {"", `instancetype --name small --cpu 2 --memory 256Mi --namespaced`},
		"instancetype-namespace": {"shop", `instancetype --name big --cpu 8 --memory 32Gi --iothreadspolicy shared --gpu name:g1,devicename:nvidia.com/A --gpu name:g2,devicename:nvidia.com/A --hostdevice name:n1,devicename:intel.com/qat`},
		"clusterpreference":      {"", `preference --name linux`},
		"preference":             {"", `preference --name linux --namespaced --cpu-topology preferCores`},
		"preference-namespace":   {"shop", `preference --name linux --cpu-topology any --machine-type q35 --volume-storage-class fast`},
		"clone":                  {"", `clone --name copy --source-name web`},
		"clone-namespace":        {"shop", `clone --name copy --source-name before --source-type snapshot --target-name web2 --label-filter '*' --label-filter '!some/key' --annotation-filter 'some/*' --template-label-filter '*' --template-annotation-filter '!a' --new-mac-address default:02-00-00-00-00-01 --new-mac-address other:02:00:00:00:00:02 --new-smbios-serial s-1`},
	} {
		t.Run(name, func(t *testing.T) {
			out, told, err := run(t, c.namespace, c.line)
			if err != nil || told != "" {
				t.Fatalf("%v, it told %s", err, told)
			}
			decode(t, out)
			fixture.Golden(t, filepath.Join("testdata", name+".yaml"), out)
		})
	}
}

// Every manifest that the builder's own tests hold decodes strictly.
func TestManifestsOfTheBuilderDecode(t *testing.T) {
	paths, err := filepath.Glob("../../../internal/createvm/testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(path), func(t *testing.T) { decode(t, string(data)) })
	}
}

// Names are random when none is given.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		namespace     namespace
		line, pattern string
	}{
		{"", "vm", `^vm-[a-z0-9]{5}$`},
		{"", "instancetype --cpu 1 --memory 1Gi", `^clusterinstancetype-[a-z0-9]{5}$`},
		{"", "instancetype --cpu 1 --memory 1Gi --namespaced", `^instancetype-[a-z0-9]{5}$`},
		{"", "preference", `^clusterpreference-[a-z0-9]{5}$`},
		{"shop", "preference", `^preference-[a-z0-9]{5}$`},
		{"", "clone --source-name web", `^clone-[a-z0-9]{5}$`},
	} {
		var names []string
		for range 2 {
			out, _, err := run(t, c.namespace, c.line)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, regexp.MustCompile(`(?m)^  name: (.*)$`).FindStringSubmatch(out)[1])
		}
		if !regexp.MustCompile(c.pattern).MatchString(names[0]) || names[0] == names[1] {
			t.Errorf("%s is named %v, want %s", c.line, names, c.pattern)
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"an argument":                {`vm web`, `unknown command "web" for "create vm"`},
		"a memory that is none":      {`vm --memory lots`, `failed to parse "--memory" flag: quantities must match`},
		"a wrong volume":             {`vm --volume-pvc web`, `failed to parse "--volume-pvc" flag: params need to have at least one colon: web`},
		"flags that do not go":       {`vm --memory 1Gi --instancetype a`, "[memory instancetype] were all set"},
		"no size":                    {`instancetype`, `required flag(s) "cpu", "memory" not set`},
		"no CPU":                     {`instancetype --cpu 0 --memory 1Gi`, `failed to parse "--cpu" flag: cpu value must be greater than zero`},
		"a CPU that is none":         {`instancetype --cpu two --memory 1Gi`, `invalid argument "two" for "--cpu" flag`},
		"an instance type of 0":      {`instancetype --cpu 1 --memory 0`, `failed to parse "--memory" flag: 0 is no memory; write for example 2Gi`},
		"words for memory":           {`instancetype --cpu 1 --memory lots`, `failed to parse "--memory" flag: quantities must match`},
		"an unknown policy":          {`instancetype --cpu 1 --memory 1Gi --iothreadspolicy all`, `failed to parse "--iothreadspolicy" flag: IOThread must be of value auto or shared, not "all"`},
		"a GPU without a name":       {`instancetype --cpu 1 --memory 1Gi --gpu devicename:a`, `failed to parse "--gpu" flag: name must be specified`},
		"a device without a device":  {`instancetype --cpu 1 --memory 1Gi --hostdevice name:a`, `failed to parse "--hostdevice" flag: devicename must be specified`},
		"a GPU with something else":  {`instancetype --cpu 1 --memory 1Gi --gpu name:a,devicename:b,size:c`, "unknown param(s): size:c; known are name, devicename"},
		"a topology that is unknown": {`preference --cpu-topology dies`, `failed to parse "--cpu-topology" flag: CPU topology must have a value of sockets, cores, threads, spread or any, not "dies"`},
		"a clone of nothing":         {`clone`, `required flag(s) "source-name" not set`},
		"a clone of no name":         {`clone --source-name ''`, `failed to parse "--source-name" flag: source name must not be empty`},
		"a clone of a pod":           {`clone --source-name web --source-type pod`, `failed to parse "--source-type" flag: source type pod is not supported. Supported types: vm, vmsnapshot`},
		"a clone to a snapshot":      {`clone --source-name web --target-type snapshot`, `failed to parse "--target-type" flag: target type snapshot is not supported. Supported types: vm`},
		"an address of no interface": {`clone --source-name web --new-mac-address 02-00-00-00-00-01`, `failed to parse "--new-mac-address" flag: 02-00-00-00-00-01 has no interface`},
		"an interface twice":         {`clone --source-name web --new-mac-address a:02-00-00-00-00-01 --new-mac-address a:02-00-00-00-00-02`, `interface a is given twice`},
		"an unknown flag":            {`preference --colour red`, "unknown flag: --colour"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(t, "", c.line)
			if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("%s: got %v, want %q; it printed %q", c.line, err, c.want, out)
			}
		})
	}
}

// What the user should know goes beside the manifest, not into it.
func TestWarnings(t *testing.T) {
	out, told, err := run(t, "", "vm --name web --volume-blank size:1Gi,name:a")
	if err != nil || told != "Warning: Flag --volume-blank has been deprecated, use flag --volume-import instead\n" {
		t.Errorf("%v, it told %q", err, told)
	}
	decode(t, out)
}
