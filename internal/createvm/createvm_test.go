package createvm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// options returns Options whose generated names count up and whose files are few.
func options() *Options {
	n := 0
	return &Options{
		Suffix: func() string { n++; return "gen" + strconv.Itoa(n) },
		ReadFile: func(path string) ([]byte, error) {
			switch path {
			case "/data01/password":
				return []byte("s3cret: #1\n"), nil
			case "/data01/lines":
				return []byte("a\nb\n"), nil
			}
			return nil, errors.New("open " + path + ": no such file or directory")
		},
	}
}

// Each line of flags makes the VM in testdata/<name>.yaml, with its warnings above.
func TestGolden(t *testing.T) {
	cases := map[string]string{
		"nothing":            ``,
		"names":              `--name my-vm --run-strategy=halted --termination-grace-period 10 --memory 1Gi`,
		"instancetype":       `--name my-vm --instancetype=u1.small --preference virtualmachinepreference/linux --volume-pvc=src:my-pvc`,
		"boot-order":         `--name my-vm --volume-containerdisk=src:my.registry:5000/my-image:my-tag --volume-import=type:ds,src:my-ds,bootorder:2 --volume-pvc=src:data,name:first,bootorder:1`,
		"inferred":           `--name my-vm --volume-import=type:ds,src:my-ns/my-ds,size:50Gi --infer-instancetype --infer-preference`,
		"inferred-from":      `--name my-vm --volume-import=type:pvc,src:ns/a,name:a --volume-import=type:snapshot,src:ns/b,name:b,size:1Gi --infer-instancetype-from b --infer-preference-from b`,
		"not-inferred":       `--name my-vm --volume-pvc=src:data --infer-instancetype=false --infer-preference=false`,
		"imports":            `--name my-vm --volume-import=type:blank,size:1Gi,name:blank --volume-import=type:gcs,url:gs://b/o,secretref:s,size:1Gi,name:gcs --volume-import=type:http,url:https://host:8443/disk.qcow2,certconfigmap:ca,extraheaders:A:1;B:2,secretextraheaders:h1;h2,size:1Gi,name:http --volume-import=type:imageio,url:https://engine,diskid:d1,size:1Gi,name:imageio --volume-import=type:registry,url:docker://host/image:1,pullmethod:node,secretref:s,certconfigmap:ca,size:1Gi,name:registry --volume-import=type:registry,imagestream:is,size:1Gi,name:stream --volume-import=type:s3,url:s3://b/o,secretref:s,size:1Gi,name:s3 --volume-import=type:vddk,url:https://vc,uuid:u,thumbprint:aa:bb,secretref:s,backingfile:[ds]f.vmdk,initimageurl:i,size:1Gi,name:vddk`,
		"deprecated-volumes": `--name my-vm --volume-import=type:blank,size:1Gi --volume-blank=size:2Gi,name:b --volume-clone-pvc=src:ns/p --volume-datasource=src:ds,size:3Gi,bootorder:1`,
		"cloud-init":         `--name my-vm --user=cloud-user --ssh-key 'ssh-ed25519 AAAA someone@host' --ssh-key="ssh-rsa BBBB,ssh-rsa CCCC" --password-file=/data01/password --ga-manage-ssh`,
		"config-drive":       `--name my-vm --cloud-init configDrive --cloud-init-user-data I2Nsb3VkLWNvbmZpZw== --cloud-init-network-data dmVyc2lvbjogMg==`,
		"cloud-init-none":    `--name my-vm --cloud-init none --ssh-key k`,
		"access-creds":       `--name my-vm --user=myuser --access-cred=src:my-keys --access-cred=type:password,src:my-pws --access-cred=type:ssh,src:k2,user:other`,
		"access-cred-drive":  `--name my-vm --access-cred=type:ssh,src:k,method:configdrive`,
		"sysprep":            `--name my-vm --volume-sysprep=src:unattend,type:Secret --memory 4Gi --volume-containerdisk=src:w`,
	}
	for name, line := range cases {
		t.Run(name, func(t *testing.T) {
			o := options()
			if err := o.Parse(line); err != nil {
				t.Fatal(err)
			}
			vm, warnings, err := o.VM()
			if err != nil {
				t.Fatal(err)
			}
			data, err := yaml.Marshal(vm)
			if err != nil {
				t.Fatal(err)
			}
			got := "# virtctl create vm " + line + "\n"
			for _, warning := range warnings {
				got += "# " + warning + "\n"
			}
			fixture.Golden(t, filepath.Join("testdata", name+".yaml"), got+string(data))
		})
	}
}

func TestRefuses(t *testing.T) {
	cases := map[string]struct{ line, want string }{
		"an unknown flag":             {`--colour red`, "unknown flag: --colour"},
		"an argument":                 {`create vm --name x`, `"create" is no flag`},
		"an open quote":               {`--name "x`, `the quote " is not closed`},
		"a help flag":                 {`--help`, "--help has no meaning here"},
		"a number that is none":       {`--termination-grace-period long`, `invalid argument "long" for "--termination-grace-period" flag`},
		"a boolean that is none":      {`--ga-manage-ssh=maybe`, `invalid argument "maybe" for "--ga-manage-ssh" flag`},
		"a memory that is none":       {`--memory lots`, `failed to parse "--memory" flag`},
		"an unknown run strategy":     {`--run-strategy Never`, `failed to parse "--run-strategy" flag: invalid run strategy "Never", supported values are: Always, Manual, Halted, Once, RerunOnFailure`},
		"memory and instance type":    {`--memory 1Gi --instancetype u1`, "if any flags in the group [memory instancetype infer-instancetype infer-instancetype-from] are set none of the others can be; [memory instancetype] were all set"},
		"user data twice":             {`--cloud-init-user-data eA== --user me`, "[cloud-init-user-data user] were all set"},
		"a wrong kind":                {`--instancetype vm/x`, `invalid instancetype kind "vm"`},
		"a wrong preference kind":     {`--preference vm/x`, `failed to parse "--preference" flag: invalid preference kind "vm"`},
		"too many slashes":            {`--instancetype a/b/c`, "more than one slash"},
		"no volume to infer from":     {`--infer-instancetype`, "at least one volume is needed to infer an instance type or preference"},
		"a volume that is not there":  {`--volume-pvc src:a --infer-preference-from b`, `there is no volume with name "b"`},
		"a volume that carries none":  {`--volume-containerdisk src:a --infer-preference`, "inference of instancetype or preference works only with datasources, datavolumes or pvcs"},
		"a blank that carries none":   {`--volume-import type:blank,size:1Gi,name:a --infer-preference`, `volume "a" carries no instance type`},
		"no colon":                    {`--volume-pvc my-pvc`, `failed to parse "--volume-pvc" flag: params need to have at least one colon: my-pvc`},
		"empty params":                {`--volume-pvc ''`, `failed to parse "--volume-pvc" flag: params may not be empty`},
		"an unknown param":            {`--volume-pvc src:a,colour:red`, "unknown param(s): colour:red"},
		"an unknown import param":     {`--volume-import type:ds,src:a,url:b`, `failed to parse "--volume-import" flag: unknown param(s): url:b`},
		"a param twice":               {`--volume-pvc src:a,src:b`, `param "src" is given twice`},
		"no source":                   {`--volume-containerdisk name:a`, "src must be specified"},
		"a claim elsewhere":           {`--volume-pvc src:ns/a`, `not allowed to specify namespace of pvc "a"`},
		"a clone without a namespace": {`--volume-import type:pvc,src:a`, `namespace of pvc "a" must be specified`},
		"an import without a type":    {`--volume-import src:a`, "type must be specified"},
		"an unknown type":             {`--volume-import type:ftp,url:x`, `invalid volume import type "ftp", supported values are: blank, ds, gcs, http`},
		"an import without a size":    {`--volume-import type:http,url:x`, "size must be specified"},
		"a size that is none":         {`--volume-blank size:big`, `failed to parse "--volume-blank" flag: failed to parse param "size"`},
		"an import without its url":   {`--volume-import type:s3,size:1Gi`, "url must be specified"},
		"two registry sources":        {`--volume-import type:registry,url:x,imagestream:y,size:1Gi`, "exactly one of url or imagestream must be defined"},
		"a wrong pull method":         {`--volume-import type:registry,url:x,pullmethod:push,size:1Gi`, "pullmethod must be set to pod or node"},
		"a wrong name":                {`--volume-pvc src:a,name:A_B`, `invalid name "A_B"`},
		"a name twice":                {`--volume-pvc src:a --volume-pvc src:a`, `there is already a volume with name "a"`},
		"boot order 0":                {`--volume-pvc src:a,bootorder:0`, "bootorder must be greater than 0"},
		"boot order twice":            {`--volume-pvc src:a,bootorder:1 --volume-pvc src:b,bootorder:1`, "bootorder 1 was specified multiple times"},
		"boot order of words":         {`--volume-pvc src:a,bootorder:one`, `failed to parse param "bootorder"`},
		"a file that is not there":    {`--password-file /nowhere`, `failed to parse "--password-file" flag: open /nowhere`},
		"a password of two lines":     {`--password-file /data01/lines`, "holds more than one line"},
		"a wrong cloud-init":          {`--cloud-init floppy`, `failed to parse "--cloud-init" flag: invalid cloud-init data source type "floppy", supported values are: nocloud, configdrive, none`},
		"a wrong sysprep":             {`--volume-sysprep src:a,type:disk`, `invalid sysprep source type "disk", supported values are: configmap, secret`},
		"a credential without a user": {`--access-cred src:a`, "user must be specified with access credential ssh method ga"},
		"a wrong credential":          {`--access-cred src:a,type:key`, `invalid access credential type "key", supported values are: ssh, password`},
		"a wrong method":              {`--access-cred src:a,method:mail,user:u`, `invalid access credentials ssh method "mail"`},
		"a wrong password method":     {`--access-cred src:a,type:password,method:nocloud`, `invalid access credentials password method "nocloud"`},
		"a user for a password":       {`--access-cred src:a,type:password,user:u`, "user cannot be specified"},
		"methods that do not match":   {`--cloud-init nocloud --access-cred src:a,method:configdrive`, "method param and value passed to --cloud-init have to match: configdrive vs nocloud"},
		"two methods":                 {`--access-cred src:a,method:nocloud --access-cred src:a,method:configdrive`, "have to match: configdrive vs nocloud"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := options()
			err := o.Parse(c.line)
			if err == nil {
				_, _, err = o.VM()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%s: got %v, want %q", c.line, err, c.want)
			}
		})
	}
}

func TestWords(t *testing.T) {
	cases := map[string][]string{
		"":                              nil,
		"  a  b\t\nc ":                  {"a", "b", "c"},
		`a\ b 'c d' "e f" g''h ""`:      {"a b", "c d", "e f", "gh", ""},
		`"a\"b\\c\d" '\n' x\"y $HOME`:   {`a"b\c\d`, `\n`, `x"y`, "$HOME"},
		"--ssh-key='ssh-ed25519 A b'":   {"--ssh-key=ssh-ed25519 A b"},
		"--name a \\\n  --memory '1Gi'": {"--name", "a", "--memory", "1Gi"},
	}
	for line, want := range cases {
		got, err := Words(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, bad := range []string{`'a`, `"a`, `a\`} {
		if got, err := Words(bad); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestScalar(t *testing.T) {
	for text, want := range map[string]string{
		"cloud-user": "cloud-user", "yes": `"yes"`, "123": `"123"`, "a: b": `"a: b"`, "a #b": `"a #b"`, "ssh-rsa A/b+c== me@x": "ssh-rsa A/b+c== me@x",
		"<x>": `"<x>"`, `q"q`: `"q\"q"`, "": `""`,
	} {
		if got := scalar(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		var back string
		if err := yaml.Unmarshal([]byte(scalar(text)), &back); err != nil || back != text {
			t.Errorf("%q is read back as %q, %v", text, back, err)
		}
	}
}

// virtctl gives neither names nor files: both have their defaults.
func TestDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	for range 2 {
		o := &Options{}
		if err := o.Parse("--password-file " + path); err != nil {
			t.Fatal(err)
		}
		vm, _, err := o.VM()
		if err != nil || len(vm.Name) != len("vm-12345") || !strings.Contains(vm.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData, "hush") {
			t.Fatalf("%+v, %v", vm, err)
		}
		names = append(names, vm.Name)
	}
	if names[0] == names[1] {
		t.Errorf("two VMs are named %s", names[0])
	}
}

// The flags of the field's virtctl create vm, all of them.
func TestFlags(t *testing.T) {
	var got []string
	for _, f := range Flags() {
		got = append(got, strings.TrimPrefix(f.Name, "--"))
		if f.Usage == "" || f.Type == "" {
			t.Errorf("%s says nothing of itself", f.Name)
		}
	}
	slices.Sort(got)
	want := strings.Fields(`access-cred cloud-init cloud-init-network-data cloud-init-user-data ga-manage-ssh infer-instancetype infer-instancetype-from
		infer-preference infer-preference-from instancetype memory name password-file preference run-strategy ssh-key termination-grace-period user
		volume-blank volume-clone-pvc volume-containerdisk volume-datasource volume-import volume-pvc volume-sysprep`)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
