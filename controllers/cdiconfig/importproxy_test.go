package cdiconfig

import (
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func by(set cdiv1.ImportProxy) *cdiv1.CDI {
	return &cdiv1.CDI{Spec: cdiv1.CDISpec{Config: &cdiv1.CDIConfigSpec{ImportProxy: &set}}}
}

func TestTheProxyIsTheOneOfTheCDIObject(t *testing.T) {
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("one")}))
	other := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("two")}))
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}))
	configMaps := map[string]map[string]string{
		"slipway/authorities": {"b": "the second\n" + other, "a": key + certificate, "README": "of nobody"},
		"slipway/none":        {"a": key},
		"slipway/many":        {"a": strings.Repeat(certificate, maxAuthorities/len(certificate)+1)},
		"team/theirs":         {"a": certificate},
	}
	for name, c := range map[string]struct {
		cdi         *cdiv1.CDI
		want        ImportProxy
		authorities string
		fault       string
	}{
		"nothing is installed": {},
		"none is set":          {cdi: &cdiv1.CDI{}},
		"all is set": {
			cdi:  by(cdiv1.ImportProxy{HTTPProxy: new(" http://a:1 "), HTTPSProxy: new("b:2"), NoProxy: new("c,d"), TrustedCAProxy: new("authorities")}),
			want: ImportProxy{HTTP: "http://a:1", HTTPS: "b:2", NoProxy: "c,d"}, authorities: certificate + other,
		},
		"authorities alone":                     {cdi: by(cdiv1.ImportProxy{TrustedCAProxy: new("authorities")}), authorities: certificate + other},
		"it names a ConfigMap that is not":      {cdi: by(cdiv1.ImportProxy{TrustedCAProxy: new("later")}), fault: "ConfigMap slipway/later"},
		"it names one of other folk":            {cdi: by(cdiv1.ImportProxy{TrustedCAProxy: new("theirs")}), fault: "ConfigMap slipway/theirs"},
		"it names one without a certificate":    {cdi: by(cdiv1.ImportProxy{TrustedCAProxy: new("none")}), fault: "holds no PEM certificate"},
		"it names one with too many of them":    {cdi: by(cdiv1.ImportProxy{TrustedCAProxy: new("many")}), fault: "is the most"},
		"what is not set is no proxy of a name": {cdi: by(cdiv1.ImportProxy{HTTPProxy: new(""), TrustedCAProxy: new("")})},
	} {
		t.Run(name, func(t *testing.T) {
			reader := shelf{cdi: c.cdi, configMaps: configMaps}
			got, err := Proxy(t.Context(), reader, reader, "slipway")
			if err != nil || got.HTTP != c.want.HTTP || got.HTTPS != c.want.HTTPS || got.NoProxy != c.want.NoProxy || string(got.Authorities) != c.authorities {
				t.Errorf("got %+v, %v", got, err)
			}
			if (got.Fault == nil) != (c.fault == "") || got.Fault != nil && !strings.Contains(got.Fault.Error(), c.fault) {
				t.Errorf("the fault is %v, want %q", got.Fault, c.fault)
			}
		})
	}
}

func TestWhichAddressesAreReachedByWhichProxy(t *testing.T) {
	set := ImportProxy{HTTP: "plain.example.com:3128", HTTPS: "https://user:password@secure.example.com", NoProxy: "internal.example.com, .near.example.com,10.0.0.0/8,192.0.2.1:8080"}
	for address, want := range map[string]string{
		"http://images.example.com/a":           "plain.example.com:3128",
		"https://images.example.com/a":          "secure.example.com",
		"http://10.1.2.3/a":                     "",
		"http://11.1.2.3/a":                     "plain.example.com:3128",
		"https://internal.example.com/a":        "",
		"https://x.internal.example.com/a":      "",
		"http://near.example.com/a":             "plain.example.com:3128",
		"http://a.near.example.com/a":           "",
		"http://192.0.2.1:8080/a":               "",
		"http://192.0.2.1/a":                    "plain.example.com:3128",
		"http://minio/bucket/a":                 "",
		"http://minio:9000/bucket/a":            "",
		"https://minio.team.svc/a":              "",
		"https://minio.team.svc:9000/a":         "",
		"https://minio.team.svc.cluster.local/": "",
		"http://MINIO.Team.SVC/a":               "",
		"http://minio.team.svc.cluster.local./": "",
		"http://minio./a":                       "",
		"http://example.com./a":                 "plain.example.com:3128",
		"http://svc.example.com/a":              "plain.example.com:3128",
		"http://localhost:8080/a":               "",
		"http://127.0.0.1/a":                    "",
		"http://[fd00::1]/a":                    "plain.example.com:3128",
		"http://[FD00::1]/a":                    "plain.example.com:3128",
		"http://MINIO/a":                        "",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		got, err := set.For(u)
		if err != nil || (got == nil) != (want == "") || got != nil && got.Host != want {
			t.Errorf("%s: got %v, %v; want %q", address, got, err, want)
		}
	}
	if got := set.Without("minio", "minio", "images.example.com", ""); got != set.NoProxy+",.svc,.cluster.local,minio" {
		t.Errorf("no_proxy is %q", got)
	}
	if got := set.Addresses(); got[0] != "plain.example.com:3128" || got[1] != "secure.example.com:443" {
		t.Errorf("the proxies are at %q", got)
	}
	if (ImportProxy{NoProxy: "a"}).Set() || !(ImportProxy{HTTPS: "a"}).Set() {
		t.Error("a proxy is there that is not, or the other way round")
	}
}

func TestEverybodyMayReadTheProxyButForItsPassword(t *testing.T) {
	for address, want := range map[string]string{
		"http://user:pa55word@proxy:3128":   "http://xxxxx@proxy:3128",
		"https://token@proxy.example.com":   "https://xxxxx@proxy.example.com",
		"user:pa55word@proxy:3128":          "http://xxxxx@proxy:3128",
		"http://user:pa55 word@proxy:3128":  hidden,
		"http://proxy:3128":                 "http://proxy:3128",
		"proxy:3128":                        "proxy:3128",
		"http://xxxxx@proxy:3128":           "http://xxxxx@proxy:3128",
		" http://user:pa55word@proxy:3128 ": "http://xxxxx@proxy:3128",
	} {
		set := &cdiv1.ImportProxy{HTTPProxy: &address, HTTPSProxy: &address, NoProxy: new("a"), TrustedCAProxy: new("b")}
		config := &cdiv1.CDIConfig{}
		complete(config, "config", by(*set), nil)
		for where, got := range map[string]*cdiv1.ImportProxy{"spec": config.Spec.ImportProxy, "status": config.Status.ImportProxy} {
			if *got.HTTPProxy != want || *got.HTTPSProxy != want || *got.NoProxy != "a" || *got.TrustedCAProxy != "b" {
				t.Errorf("the %s shows %s as %s and %s, want %s", where, address, *got.HTTPProxy, *got.HTTPSProxy, want)
			}
		}
		if *set.HTTPProxy != address {
			t.Errorf("the CDI object itself is changed to %s", *set.HTTPProxy)
		}
		if Secret(address) != (strings.TrimSpace(address) != strings.TrimSpace(want) || strings.Contains(address, hidden)) {
			t.Errorf("%s: taken for secret: %t", address, Secret(address))
		}
	}
	if Status(&cdiv1.CDIConfigSpec{}, nil).ImportProxy != nil || Secret("") {
		t.Error("there is a proxy that nobody set")
	}
}

func TestAProxyThatIsNoneIsRefusedWithoutItsPassword(t *testing.T) {
	at := field.NewPath("importProxy")
	for address, right := range map[string]bool{
		"": true, " ": true, "http://proxy:3128": true, "https://user:pa55word@proxy.example.com:3128/": true, "10.0.0.1:3128": true,
		"http://user:pa55%2Fword@[fd00::1]:3128": true, "user:pa55word@proxy": true,
		"http://user:pa55/word@proxy:3128": false, "http://user:pa55#word@proxy:3128": false, "http://user:pa55?word@proxy:3128": false,
		"http://user:pa55 word@proxy:3128": false, "http://user:pa55%word@proxy:3128": false, "http://user:pa55word@": false,
		"socks5://user:pa55word@proxy:1080": false, "http://proxy:0": false, "http://proxy:70000": false, "http://proxy/path": false, "http://": false,
	} {
		for name, set := range map[string]*cdiv1.ImportProxy{"importProxy.HTTPProxy": {HTTPProxy: &address}, "importProxy.HTTPSProxy": {HTTPSProxy: &address}} {
			errs := validateProxy(set, at)
			if right != (len(errs) == 0) || len(errs) > 1 || len(errs) == 1 && errs[0].Field != name {
				t.Errorf("%q: %v", address, errs)
			}
			if err := errs.ToAggregate(); err != nil && (strings.Contains(err.Error(), "pa55") || strings.Contains(err.Error(), "word@proxy")) {
				t.Errorf("%q: the message has the password: %v", address, err)
			}
		}
	}
	for list, right := range map[string]bool{
		"": true, "a": true, "a, .b.example.com ,*.c,10.0.0.0/8,fd00::/8,[fd00::1]:80,d:80,*": true, "a,,b": true,
		"10.0.0.1,10.0.0.1:80,fd00::1,.e:80,*.f:80,bücher.example.com,my_host,example.com.,LOCALHOST,4.example.com": true,
		"http://a": false, "a b": false, "10.0.0.0/40": false, "user@a": false,
		"10.0.": false, "10.0.0.*": false, "10.0.0.1-10.0.0.9": false, "*a": false, "a*": false, ":80": false, "a:b": false, "a:": false, ".": false, "*.": false,
		"[fd00::1]": false, "fe80::1%eth0": false, "a;b": false, "10.0.0.256": false,
	} {
		errs := validateProxy(&cdiv1.ImportProxy{NoProxy: &list}, at)
		if right != (len(errs) == 0) || len(errs) > 1 || len(errs) == 1 && errs[0].Field != "importProxy.noProxy" {
			t.Errorf("%q: %v", list, errs)
		}
	}
	if errs := validateProxy(&cdiv1.ImportProxy{TrustedCAProxy: new("A b")}, at); len(errs) != 1 || errs[0].Field != "importProxy.trustedCAProxy" {
		t.Errorf("a ConfigMap of no name: %v", errs)
	}
	if errs := Validate(&cdiv1.CDIConfigSpec{ImportProxy: &cdiv1.ImportProxy{HTTPProxy: new("socks5://a")}}, field.NewPath("spec", "config")); len(errs) != 1 || errs[0].Field != "spec.config.importProxy.HTTPProxy" {
		t.Errorf("a configuration with it: %v", errs)
	}
}
